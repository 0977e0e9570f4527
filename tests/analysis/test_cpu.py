"""The CPU's regimes from sweeps whose law is known by construction."""

from __future__ import annotations

from dataclasses import replace

import pytest

from referee.analysis.cpu import judge_cpu
from referee.analysis.diagnose import diagnose
from referee.analysis.live import judge_live
from referee.records.finding import Finding
from referee.records.measurement import Clocks, Measurement, Sweep, SweepPoint, Warmup
from referee.records.provenance import Provenance
from referee.stats.law import fit_law
from referee.trace.builder import TraceBuilder

PROVENANCE = Provenance(
    chip={"threads": 2, "affinity": "0-1"},
    dtype="float32",
    shapes=(),
    method={"clock": "settled_amortised"},
    software={},
    switches={},
    machine_state={},
)


def measured(median_ns: float, *, enqueue_ns: float | None = None) -> Measurement:
    """A measurement of which only the time, and perhaps the enqueue clock, matter here."""
    return Measurement(
        name="made",
        median_ns=median_ns,
        ci_low_ns=median_ns,
        ci_high_ns=median_ns,
        ci_level=0.95,
        iqr_ns=0.0,
        floor_ns=median_ns,
        p95_ns=median_ns,
        n=1,
        n_eff=1.0,
        blocks=1,
        stop_reason="made",
        clocks=Clocks(
            enqueue_ns=enqueue_ns, settled_amortised_ns=median_ns, settled_per_call_ns=median_ns, device_ns=None
        ),
        naive_ns=None,
        warmup=Warmup(calls=1, total_ns=1, first_call_ns=1, steady=True),
        samples_ns=(median_ns,),
        clean=(True,),
        provenance=PROVENANCE,
    )


BATCHES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


def sweep(times: dict[float, float]) -> Sweep:
    """A sweep with these times per call, and the fit to them."""
    points = tuple(
        SweepPoint(
            value=value,
            median_ns=ns,
            ci_low_ns=ns * 0.99,
            ci_high_ns=ns * 1.01,
            throughput_per_s=value / ns * 1e9,
            measurement=measured(ns),
        )
        for value, ns in times.items()
    )
    return Sweep(
        name="made",
        parameter="batch_size",
        points=points,
        fit=fit_law(list(times), list(times.values())),
        provenance=PROVENANCE,
    )


def summed(intercept: float, slope: float) -> Sweep:
    return sweep({b: intercept + slope * b for b in BATCHES})


@pytest.mark.parametrize(
    ("at", "regime"),
    [(1, "overhead-bound"), (5, "overhead-bound"), (8, "mixed"), (16, "compute-bound"), (128, "compute-bound")],
)
def test_overhead_against_arithmetic_at_the_batch_measured(at: float, regime: str) -> None:
    """t(b) = 80 + 10 b µs: the knee is at 8. At 4 overhead is two thirds of the time, at 16 a third."""
    verdict = judge_cpu(summed(80_000, 10_000), at=at)
    assert verdict.regime == regime, verdict
    assert (verdict.undecided_because is None) == (regime != "mixed")
    share = next(e for e in verdict.evidence if "share that does not grow" in e.name)
    assert share.value == pytest.approx(80 / (80 + 10 * {1: 1, 5: 4, 8: 8, 16: 16, 128: 128}[int(at)]), rel=0.05)
    assert "60.0 %" in share.threshold


def test_under_the_law_of_the_larger_the_hidden_side_does_not_count() -> None:
    times = {b: max(100_000.0, 10_000.0 * b) for b in BATCHES}
    assert judge_cpu(sweep(times), at=2).regime == "overhead-bound"
    assert judge_cpu(sweep(times), at=64).regime == "compute-bound"


def test_the_operators_own_cost_must_agree() -> None:
    """Half a million nanoseconds that do not grow, of which 100 operators at 1 µs explain a fifth: not all overhead."""
    made = summed(500_000, 10_000)
    assert judge_cpu(made, at=8).regime == "overhead-bound"
    assert judge_cpu(made, at=8, n_ops=400, op_ns=1_000).regime == "overhead-bound"
    verdict = judge_cpu(made, at=8, n_ops=100, op_ns=1_000)
    assert verdict.regime == "mixed"
    assert verdict.evidence[-1].value == pytest.approx(100_000 / 580_000)


def test_two_points_with_constant_time_per_item_are_compute_bound() -> None:
    """Batch 16: 0.46 s, batch 32: 0.95 s: already saturated, a larger batch gains nothing."""
    verdict = judge_cpu(sweep({16.0: 0.46e9, 32.0: 0.95e9}), at=16)
    assert verdict.regime == "compute-bound"
    growth = next(e for e in verdict.evidence if "growth" in e.name)
    assert growth.value == pytest.approx(1.05, abs=0.01)


def test_two_points_with_constant_time_are_overhead_bound() -> None:
    assert judge_cpu(sweep({16.0: 1e6, 32.0: 1.02e6}), at=16).regime == "overhead-bound"


@pytest.mark.parametrize("nothing", [None, sweep({8.0: 1e6})])
def test_one_batch_size_alone_says_nothing(nothing: Sweep | None) -> None:
    verdict = judge_cpu(nothing)
    assert (verdict.regime, verdict.undecided_because) == ("cannot-tell", "one-batch-size")


def test_a_live_run_on_the_cpu_is_judged_by_its_sweep() -> None:
    empty = diagnose(TraceBuilder().op("aten::add", 0, 10).build())
    judged = judge_live(measured(90_000.0), sweep=summed(80_000, 10_000), trace=empty)
    assert judged.verdict.regime == "overhead-bound"
    assert judged.findings == ()
    assert judged.remedies[0].attacks == "per-op CPU overhead"
    larger = next(r for r in judged.remedies if "larger" in r.name)
    # One item costs 90 µs at batch 1 and 10.6 µs at batch 128.
    assert larger.high_ns == pytest.approx(90_000 - (80_000 + 1_280_000) / 128)


def test_a_live_run_with_device_rows_is_judged_by_its_trace() -> None:
    report = diagnose(TraceBuilder().kernel("a", 0, 10_000).kernel("b", 10_000, 10_000).build())
    judged = judge_live(measured(90_000.0), sweep=summed(80_000, 10_000), trace=report)
    assert judged.verdict.regime == report.verdict.regime == "compute-bound"
    assert judged.remedies == report.remedies
    null = next(e for e in judged.verdict.evidence if e.name == "null experiment")
    assert null.value == pytest.approx(8, rel=0.05)


@pytest.mark.parametrize(
    ("enqueue_ns", "regime"), [(95_000.0, "launch-bound"), (20_000.0, "compute-bound"), (70_000.0, "mixed")]
)
def test_without_device_rows_the_enqueue_clock_names_the_slower_side(enqueue_ns: float, regime: str) -> None:
    judged = judge_live(measured(100_000.0, enqueue_ns=enqueue_ns), sweep=None, trace=None)
    assert judged.verdict.regime == regime


def test_without_a_sweep_one_batch_size_is_a_finding() -> None:
    judged = judge_live(measured(90_000.0), sweep=None, trace=None)
    assert [f.code for f in judged.findings] == ["one-batch-size"]
    assert judged.verdict.regime == "cannot-tell"


def test_a_sweep_without_one_number_still_has_an_answer() -> None:
    """On a machine too busy for any point the step is told what could not be measured, not a traceback."""
    points = tuple(replace(p, median_ns=None, ci_low_ns=None, ci_high_ns=None) for p in summed(80_000, 10_000).points)
    nothing = replace(summed(80_000, 10_000), points=points, fit=fit_law([], []))
    judged = judge_live(measured(90_000.0), sweep=nothing, trace=None, at=8)
    assert judged.verdict.regime == "cannot-tell"
    assert not [r for r in judged.remedies if "larger" in r.name]


def waiting(median_ns: float, *, waited: float) -> Measurement:
    finding = Finding(code="host-waits", severity="warning", message="It waits.", evidence={"waited_frac": waited})
    return replace(measured(median_ns), findings=(finding,))


def test_more_threads_than_cores_are_worth_a_try_where_arithmetic_sets_the_time() -> None:
    crowded = replace(measured(1_600_000.0), provenance=replace(PROVENANCE, chip={"threads": 4, "affinity": "0-1"}))
    judged = judge_live(crowded, sweep=sweep({b: 50_000.0 * b for b in BATCHES}), trace=None)
    (remedy,) = [r for r in judged.remedies if "threads" in r.name]
    assert remedy.name == "Use 2 threads instead of 4"
    assert remedy.basis == "more threads than cores wait for one another"


def test_a_step_that_sleeps_is_not_called_overhead() -> None:
    """Its time does not grow with the batch, but no operator's cost is in it."""
    judged = judge_live(waiting(100_000.0, waited=0.98), sweep=sweep(dict.fromkeys(BATCHES, 100_000.0)), trace=None)
    assert judged.verdict.regime == "mixed"
    assert "98.0 % of the time the step waits without computing" in (judged.verdict.undecided_because or "")
    high_ns = {remedy.name: remedy.high_ns for remedy in judged.remedies}
    assert high_ns["Take the wait out of the step"] == pytest.approx(98_000)
    assert high_ns["Compile the step, so that fewer operators are issued"] == pytest.approx(2_000, rel=0.01)


@pytest.mark.parametrize(("ratio", "told"), [(1.0, False), (1.05, False), (1.3, True), (0.7, True)])
def test_one_point_read_twice_must_read_the_same(ratio: float, told: bool) -> None:
    at_eight = 160_000.0 * ratio
    judged = judge_live(measured(at_eight), sweep=summed(80_000, 10_000), trace=None, at=8)
    assert ("repeat-differs" in [f.code for f in judged.findings]) == told


def test_the_null_experiment_says_which_points_it_cannot_rely_on() -> None:
    made = summed(80_000, 10_000)
    disturbed = Finding(code="disturbed", severity="warning", message="Something else ran.")
    first, *rest = made.points
    limited = replace(first, measurement=replace(first.measurement, findings=(disturbed,)))
    verdict = judge_cpu(replace(made, points=(limited, *rest)), at=1)
    share = next(e for e in verdict.evidence if "share that does not grow" in e.name)
    assert share.so.endswith("; 1 of 8 points limited (disturbed)")


def test_a_step_that_stands_in_its_loader_is_not_called_overhead() -> None:
    """Workers that are started anew in each step take most of it: no compiler and no larger batch helps."""
    builder = TraceBuilder()
    for number in range(3):
        begin = number * 1_000_000
        builder.step(number, begin, 990_000).loader(begin + 10_000, 800_000, workers=True)
        builder.op("aten::mm", begin + 820_000, 100_000)
    trace = diagnose(builder.build())
    told = next(e for e in trace.verdict.evidence if "data loader" in e.name)
    assert told.value == pytest.approx(0.808, abs=0.001)
    judged = judge_live(measured(1_000_000.0), sweep=summed(800_000, 10_000), trace=trace, at=8)
    assert judged.verdict.regime == "mixed"
    assert (judged.verdict.undecided_because or "").startswith("loader: 80.8 %")
    assert judged.remedies[0].attacks == "the data loader"
    assert judged.remedies[0].high_ns == pytest.approx(808_000, rel=0.001)
