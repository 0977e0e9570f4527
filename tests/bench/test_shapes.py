from __future__ import annotations

from dataclasses import replace

import pytest

import referee
from referee.bench.plan import Plan
from referee.bench.shapes import Shape, measure_shapes
from referee.bench.sweep import Built
from referee.device.fake import FakeDevice, FakeLazy, FakeOutput, FakeSync
from referee.device.noise import Preemption, VirtualClock
from referee.errors import OptionError
from referee.records.finding import Finding
from referee.records.schema import from_json, to_json
from referee.report.compose import compose
from referee.report.text import render_text
from referee.units import NS_PER_MS, NS_PER_S

US = 1_000
PLAN = Plan(budget_ns=200 * NS_PER_MS)


def shape(device: FakeDevice, host_us: int, *, share: float = 1.0, key: object = None) -> Shape:
    def step() -> FakeOutput:
        return device.run(host_ns=host_us * US, key=key)  # type: ignore[arg-type]

    return Shape(built=Built(step=step), share=share)


def test_the_mixture_follows_the_shares() -> None:
    """90 % short, 8 % middle, 2 % long: the 95th percentile is a middle one, the 99th a long one."""
    device = FakeSync()
    found = measure_shapes(
        {
            "128": shape(device, 10, share=90),
            "512": shape(device, 40, share=8),
            "4096": shape(device, 300, share=2),
        },
        device=device,
        plan=Plan(budget_ns=NS_PER_S),
    )
    assert found.mixture is not None
    assert found.mixture.p50_ns == 10 * US
    assert found.mixture.p95_ns == 40 * US
    assert found.mixture.p99_ns == 300 * US
    assert [p.share_frac for p in found.points] == [0.9, 0.08, 0.02]
    assert [p.tail.p99_ns for p in found.points if p.tail] == [10 * US, 40 * US, 300 * US]
    assert found.findings == ()


def test_too_few_calls_for_the_99th_percentile_are_said_to_be() -> None:
    device = FakeSync()
    found = measure_shapes({"big": shape(device, 2_000)}, device=device, plan=PLAN)
    assert [f.code for f in found.findings] == ["few-samples"]
    assert found.findings[0].evidence["wanted"] == 299


def test_preempted_calls_are_left_out_and_counted() -> None:
    device = FakeSync(clock=VirtualClock(preemptions=Preemption.every(NS_PER_MS, length_ns=400 * US)))
    found = measure_shapes({"a": shape(device, 10)}, device=device, plan=PLAN)
    assert found.mixture is not None
    assert found.mixture.p99_ns == 10 * US
    assert found.preempted_frac == pytest.approx(1 / 60, rel=0.1)
    assert found.p99_all_ns is not None
    assert found.p99_all_ns > 10 * US


def test_a_shape_that_still_compiles_when_all_are_warm_is_refused() -> None:
    device = FakeLazy(compile_ns=US)
    width = iter(range(10**6))
    changing = Shape(built=Built(step=lambda: device.run(host_ns=10 * US, key=next(width))))
    found = measure_shapes({"fixed": shape(device, 10, key="fixed"), "any": changing}, device=device, plan=PLAN)
    assert [(f.code, f.severity) for f in found.findings if f.severity == "fatal"] == [("recompiled", "fatal")]


def test_an_interrupt_keeps_the_calls_that_were_made() -> None:
    device = FakeSync()
    left = iter(range(10**6))

    def step() -> FakeOutput:
        if next(left) == 3_000:
            raise KeyboardInterrupt
        return device.run(host_ns=10 * US)

    found = measure_shapes({"a": Shape(built=Built(step=step))}, device=device, plan=PLAN)
    assert found.stop_reason == "interrupted"
    assert found.mixture is not None


def test_sets_that_make_no_sense_are_refused() -> None:
    device = FakeSync()
    with pytest.raises(OptionError):
        measure_shapes({}, device=device)
    with pytest.raises(OptionError):
        measure_shapes({"a": shape(device, 1, share=0)}, device=device)


def test_a_set_of_shapes_survives_saving_and_loading() -> None:
    device = FakeSync()
    found = measure_shapes({"a": shape(device, 10)}, device=device, plan=PLAN)
    assert from_json(to_json(found)) == found


def test_no_percentiles_where_a_finding_forbids_them() -> None:
    device = FakeSync()
    zeros = Finding(code="zero-inputs", severity="fatal", message="Every input is all zeros.")
    built = replace(shape(device, 10).built, findings=(zeros,))
    found = measure_shapes({"a": shape(device, 10), "b": Shape(built=built)}, device=device, plan=PLAN)
    assert (found.mixture, found.p99_all_ns, [point.tail for point in found.points]) == (None, None, [None, None])
    (told,) = found.findings
    assert told.message == "b: Every input is all zeros."
    assert "Every input is all zeros" in render_text(compose(found), width=100, color=False)


def test_a_step_that_raises_keeps_the_calls_before_it() -> None:
    device = FakeSync()
    left = iter(range(10**6))

    def step() -> FakeOutput:
        if next(left) == 4_000:
            raise ValueError("no more data")
        return device.run(host_ns=10 * US)

    found = measure_shapes({"a": Shape(built=Built(step=step))}, device=device, plan=PLAN)
    assert found.stop_reason == "raised"
    assert found.mixture is not None
    assert "ValueError: no more data at a" in found.findings[0].message
    with pytest.raises(OptionError, match="has an end"):
        measure_shapes({"a": shape(device, 10, share=float("inf"))}, device=device, plan=PLAN)


@pytest.mark.torch
def test_results_that_are_handed_out_again_are_told() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(4)
    kept = x * 2
    found = referee.shapes(lambda ready: (lambda: kept) if ready else lambda: x * 2, [False, True], budget="30ms")
    told = [finding.evidence["shape"] for finding in found.findings if finding.code == "cached-result"]
    assert told == ["True"]
