"""No row is constant: a device or an operator with a planted cost changes the outcome, exactly on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import comb
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.analysis.diagnose import diagnose
from referee.bench.plan import Plan
from referee.device.fake import FakeAsync, FakeDevice, FakeLazy, FakeSync
from referee.errors import DeviceMissing, OptionError
from referee.lab import measuring, operators
from referee.lab import recorded as recorded_traces
from referee.lab.claims import BY_ID, CLAIMS, MS, US
from referee.lab.laboratory import Laboratory, Reading, Recorded
from referee.lab.run import EXPERIMENTS, Experiment, judge, put_to_test, run_lab, select
from referee.records.lab import LabRow
from referee.records.schema import load, save
from referee.report.compose import compose
from referee.report.text import render_text
from referee.trace.builder import TraceBuilder
from referee.units import NS_PER_MS

PLAN = Plan(budget_ns=30 * NS_PER_MS, min_ns=10 * NS_PER_MS, warmup_min_ns=NS_PER_MS)


def missing(name: str) -> FakeDevice:
    raise DeviceMissing(f"No device {name} here.")


def planted(device: FakeDevice, **costs_ns: int) -> Any:
    """Stands for ``torch``: functions of these names take so long on the device's clock, and nothing is computed.

    With a tape (outside ``no_grad``) each takes ``tape`` more, where that is given.
    """
    tape_ns = costs_ns.pop("tape", 0)
    taping = [True]

    @contextmanager
    def no_grad() -> Iterator[None]:
        taping[0] = False
        try:
            yield
        finally:
            taping[0] = True

    def make(cost_ns: int) -> Callable[..., Any]:
        return lambda *_: device.run(host_ns=cost_ns + tape_ns * taping[0])

    functions = {name: make(cost) for name, cost in costs_ns.items()}
    return SimpleNamespace(randn=lambda *_, **__: None, no_grad=no_grad, **functions)


def laboratory(device: FakeDevice | None = None, **fields: Any) -> Laboratory:
    fields.setdefault("operators", None)
    return Laboratory(device=device or FakeSync(), plan=PLAN, open=fields.pop("open", missing), **fields)


def row(claim: str, lab: Laboratory) -> LabRow:
    return put_to_test(BY_ID[claim], EXPERIMENTS[claim], lab)


def clock_step(device: Any) -> Callable[[], object]:
    return lambda: device.run(host_ns=5_000, device_ns=95_000)


def test_every_claim_has_an_experiment_and_says_what_it_teaches() -> None:
    assert set(EXPERIMENTS) == set(BY_ID)
    assert len(CLAIMS) == 40
    for claim in CLAIMS:
        assert claim.teaches.endswith(".")
        assert claim.low <= claim.high
        experiment = EXPERIMENTS[claim.id]
        assert experiment.live is not None or experiment.needs


@pytest.mark.parametrize(("device", "outcome"), [(FakeSync(), "holds"), (FakeAsync(), "differs")])
def test_a_plain_timer_is_right_where_calls_are_synchronous(device: FakeDevice, outcome: str) -> None:
    found = row("M1", laboratory(device, step=clock_step))
    assert found.outcome == outcome
    assert found.basis == "live"


@pytest.mark.parametrize(("device", "outcome"), [(FakeLazy(), "holds"), (FakeSync(), "differs")])
def test_a_plain_timer_sees_nothing_where_calls_are_recorded(device: FakeDevice, outcome: str) -> None:
    assert row("M3", laboratory(step=clock_step, open=lambda _: device)).outcome == outcome


@pytest.mark.parametrize(("device", "outcome"), [(FakeAsync(), "holds"), (FakeSync(), "differs")])
def test_an_asynchronous_device_answers_where_it_is_here(device: FakeDevice, outcome: str) -> None:
    assert row("M2", laboratory(step=clock_step, open=lambda _: device)).outcome == outcome


@pytest.mark.parametrize(("each_ns", "outcome"), [(1_000, "differs"), (8_000, "holds"), (15_000, "differs")])
def test_a_thousand_operators_cost_what_was_planted(each_ns: int, outcome: str) -> None:
    device = FakeSync()
    found = row("E3", laboratory(device, operators=planted(device, add=each_ns)))
    assert found.measured == pytest.approx(1_000 * each_ns, rel=0.01)
    assert found.outcome == outcome


@pytest.mark.parametrize(("three_ns", "outcome"), [(1_400, "holds"), (600, "differs")])
def test_what_an_argument_costs_is_what_was_planted(three_ns: int, outcome: str) -> None:
    device = FakeSync()
    found = row("E20", laboratory(device, operators=planted(device, neg=1_000, addcmul=three_ns)))
    assert found.measured == pytest.approx((three_ns - 1_000) / 2, abs=1)
    assert found.outcome == outcome


def test_what_saving_costs_is_beyond_the_tape_alone() -> None:
    device = FakeSync()
    found = row("E21", laboratory(device, operators=planted(device, mul=900, add=700, tape=300)))
    assert found.measured == pytest.approx(0, abs=1)
    assert found.outcome == "differs"


@pytest.mark.parametrize(("per_million_ns", "outcome"), [(4_000, "holds"), (100, "differs"), (60_000, "differs")])
def test_the_size_at_which_the_device_takes_over_is_found(per_million_ns: int, outcome: str) -> None:
    """The host needs 8 µs; the device 1 µs and what was planted per million elements."""
    device = FakeAsync()

    def add(size: int, _: int) -> Any:
        return device.run(host_ns=8_000, device_ns=1_000 + per_million_ns * size // 10**6)

    names = SimpleNamespace(randn=lambda size: SimpleNamespace(to=lambda _: size), add=add)
    found = row("E6", laboratory(operators=names, open=lambda _: device))
    assert found.outcome == outcome
    assert found.low is not None
    assert found.high is not None
    assert found.low <= 7_000 / per_million_ns * 10**6 <= found.high


def test_a_device_that_is_here_wants_a_trace() -> None:
    assert "referee profile" in row("E7", laboratory(open=lambda _: FakeAsync())).why


@pytest.mark.parametrize(("limit", "outcome"), [(US, "differs"), (3 * US, "holds")])
def test_the_cost_of_a_launch_is_read_off_the_trace(limit: float, outcome: str) -> None:
    assert row("E7", laboratory(recorded=(recorded(launch_ns=int(limit)),))).outcome == outcome


@pytest.mark.parametrize(("kernel_ns", "outcome"), [(1_000, "differs"), (3_000, "holds"), (9_000, "differs")])
def test_the_length_of_a_kernel_is_read_off_the_trace(kernel_ns: int, outcome: str) -> None:
    found = row("E2", laboratory(recorded=(recorded(kernel_ns=kernel_ns),)))
    assert (found.measured, found.outcome, found.basis, found.sources) == (kernel_ns, outcome, "recorded", ("made",))


@pytest.mark.parametrize(("launch_ns", "outcome"), [(5_000, "holds"), (60_000, "differs")])
def test_kernels_outlive_their_launch_or_do_not(launch_ns: int, outcome: str) -> None:
    assert row("M2", laboratory(recorded=(recorded(launch_ns=launch_ns, delay_ns=4_000),))).outcome == outcome


def recorded(*, launch_ns: int = 5_000, kernel_ns: int = 3_000, delay_ns: int | None = None) -> Recorded:
    """Twenty launches, one every 100 µs, each with one elementwise kernel that starts ``delay_ns`` after the call."""
    builder = TraceBuilder(source="made")
    after_ns = launch_ns + 1_000 if delay_ns is None else delay_ns
    for number in range(20):
        at_ns = number * 100_000
        builder.launch("cudaLaunchKernel", at_ns, launch_ns, correlation=number + 1)
        builder.kernel("vectorized_elementwise_kernel", at_ns + after_ns, kernel_ns, correlation=number + 1)
    trace = builder.build()
    return Recorded(name="made", trace=trace, report=diagnose(trace))


def test_without_a_device_and_without_traces_the_row_says_what_it_needs() -> None:
    found = row("E7", laboratory())
    assert (found.outcome, found.measured) == ("needs-device", None)
    assert "--trace" in found.why


def test_a_trace_that_cannot_answer_is_no_answer() -> None:
    trace = TraceBuilder().op("aten::add", 0, 10).build()
    empty = Recorded(name="host only", trace=trace, report=diagnose(trace))
    assert row("E7", laboratory(recorded=(empty,))).outcome == "needs-device"


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (1.0, 1.9, "differs"),
        (1.0, 2.0, "cannot-tell"),
        (1.9, 2.3, "holds"),
        (2.5, 2.6, "holds"),
        (3.0, 9.0, "cannot-tell"),
        (3.1, 9.0, "differs"),
    ],
)
def test_a_number_in_the_range_holds_and_an_interval_outside_differs(low: float, high: float, outcome: str) -> None:
    claim = _claim(2.0, 3.0)
    found = judge(claim, Reading(value=(low + high) / 2, low=low, high=high), basis="live")
    assert found.outcome == outcome
    assert ("likely: a reason" in found.why) == (outcome == "differs")


@given(st.lists(st.integers(0, 10**9), min_size=6, max_size=60, unique=True))
def test_the_interval_over_traces_leaves_out_less_than_it_may(numbers: list[int]) -> None:
    ordered = np.sort(np.array(numbers, dtype=np.float64))
    low, high = recorded_traces._order_interval(ordered)
    inside = int(((ordered >= low) & (ordered <= high)).sum())
    below = (len(numbers) - inside) // 2
    missed = sum(comb(len(numbers), k) for k in range(below + 1)) / 2 ** len(numbers)
    assert low <= np.median(ordered) <= high
    assert missed <= 0.025 or below == 0


def _claim(low: float, high: float) -> Any:
    from dataclasses import replace

    return replace(BY_ID["M4"], low=low, high=high, below="a reason", above="a reason")


def test_contradictions_are_sums_of_the_claims_own_figures() -> None:
    assert "5.5 to 12 µs" in BY_ID["E1"].contradiction
    assert "4,800 to 14,400" in BY_ID["E4"].contradiction
    assert BY_ID["E1"].low == pytest.approx(3.5 * US)
    assert BY_ID["M5"].low < 0.142 * MS < BY_ID["M5"].high


def test_claims_are_chosen_by_name_in_the_order_of_the_list() -> None:
    assert [claim.id for claim in select(["e2", "M1"])] == ["M1", "E2"]
    assert len(select([])) == len(CLAIMS)
    with pytest.raises(OptionError, match="Q9"):
        select(["Q9"])


def test_a_report_is_saved_loaded_and_shown(tmp_path: Any) -> None:
    pytest.importorskip("torch")
    device = FakeSync()
    experiments = {"M1": Experiment(live=measuring.synchronous), "E6": EXPERIMENTS["E6"]}
    report = run_lab([BY_ID["M1"], BY_ID["E6"]], laboratory(device, step=clock_step), experiments=experiments)
    save(report, tmp_path / "lab.json")
    assert load(tmp_path / "lab.json") == report
    text = render_text(compose(report), width=100, color=False)
    assert "1 of 2 hold" in text
    assert "needs a device" in text
    assert BY_ID["M1"].teaches.split()[0] in text


@pytest.mark.torch
class TestStructure:
    """What torch itself is asked, with an operator put in its place that behaves otherwise."""

    def lab(self, **instead: Any) -> Laboratory:
        torch = pytest.importorskip("torch")
        from referee.device.registry import open_device

        names = SimpleNamespace(**{name: getattr(torch, name) for name in dir(torch) if not name.startswith("__")})
        for name, function in instead.items():
            setattr(names, name, function)
        return Laboratory(device=open_device("cpu"), plan=PLAN, operators=names)

    def test_nodes_per_operator_follow_the_operator(self) -> None:
        import torch

        assert operators.nodes(self.lab()).value == 1
        twice = self.lab(mul=lambda a, b: torch.mul(torch.mul(a, b), b))
        assert put_to_test(BY_ID["E11"], EXPERIMENTS["E11"], twice).outcome == "differs"

    def test_requests_follow_the_operator(self) -> None:
        import torch

        def wasteful(a: Any, b: Any, *, out: Any = None) -> Any:
            return torch.add(a, b, out=out) if out is not None else torch.add(a.clone(), b)

        assert operators.requests(self.lab()).value == pytest.approx(1)
        assert put_to_test(BY_ID["E18"], EXPERIMENTS["E18"], self.lab(add=wasteful)).outcome == "differs"

    def test_what_autocast_does_is_looked_at(self) -> None:
        import torch

        everything = {"sum": True, "softmax": True, "exp": True}
        widened = {name: _widened(getattr(torch, name)) for name in everything}
        assert measuring.autocast(self.lab(**widened)).value > measuring.autocast(self.lab()).value

    def test_a_mutation_is_seen_and_one_that_did_not_happen_is_not(self) -> None:
        assert operators.versions(self.lab()).value == 1
        apart = self.lab(randn=lambda *_, **__: _Copying())
        assert put_to_test(BY_ID["E13"], EXPERIMENTS["E13"], apart).outcome == "differs"

    def test_scaling_saves_what_fits_the_scale(self) -> None:
        import torch

        far = self.lab(exp2=lambda exponents: torch.exp2(exponents - 20))
        assert measuring.saved_by_scaling(self.lab()).value == 1
        assert put_to_test(BY_ID["M9"], EXPERIMENTS["M9"], far).outcome == "differs"

    def test_a_tape_is_read(self) -> None:
        import torch

        assert operators.saved(self.lab()).value == 1
        keeps_nothing = self.lab(mm=lambda a, b: torch.mm(a.detach(), b.detach()))
        assert put_to_test(BY_ID["E12"], EXPERIMENTS["E12"], keeps_nothing).outcome == "differs"


def _widened(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *rest: function(x.float(), *rest)


class _Copying:
    """A tensor whose in-place addition writes to a copy: no version moves, and backward has nothing to refuse."""

    _version = 0

    def __mul__(self, other: Any) -> _Copying:
        return self

    def add_(self, other: Any) -> _Copying:
        return _Copying()

    def sum(self) -> _Copying:
        return self

    def backward(self) -> None:
        pass
