"""The claims about measuring follow the device: its way of settling, its costs, its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from referee.device.fake import FakeAsync, FakeDevice, FakeLazy, FakeSync
from referee.lab import laboratory as laboratory_module
from referee.lab import measuring
from referee.lab.laboratory import Laboratory
from referee.units import NS_PER_MS, format_frac

from .planted import PLAN, laboratory, launches, missing, planted, planted_models, row


def clock_step(device: Any) -> Callable[[], object]:
    return lambda: device.run(host_ns=5_000, device_ns=95_000)


@pytest.mark.parametrize(("device", "outcome"), [(FakeSync(), "holds"), (FakeAsync(), "differs")])
def test_a_plain_timer_is_right_where_calls_are_synchronous(device: FakeDevice, outcome: str) -> None:
    found = row("M1", laboratory(device, step=clock_step))
    assert found.outcome == outcome
    assert found.basis == "live"


@pytest.mark.parametrize(("device", "outcome"), [(FakeAsync(), "holds"), (FakeSync(), "differs")])
def test_an_asynchronous_device_answers_where_it_is_here(device: FakeDevice, outcome: str) -> None:
    assert row("M2", laboratory(step=clock_step, open=lambda _: device)).outcome == outcome


class _TwoQueues(FakeAsync):
    """A synchronise awaits one queue alone; the device's own marks see both, the other taking ``other_frac`` more."""

    def __init__(self, other_frac: float) -> None:
        super().__init__()
        self.other_frac = other_frac

    def timer(self) -> Any:
        marks: Any = super().timer()
        elapsed_ns = marks.elapsed_ns
        marks.elapsed_ns = lambda: elapsed_ns() * (1 + self.other_frac)
        return marks


@pytest.mark.parametrize(("other_frac", "outcome"), [(0.0, "holds"), (0.02, "holds"), (0.3, "differs")])
def test_a_synchronise_that_leaves_work_behind_does_not_mend_it(other_frac: float, outcome: str) -> None:
    """The row's own number is the same in all three: only what was waited for differs."""
    device = _TwoQueues(other_frac)
    found = row("M2", laboratory(step=clock_step, open=lambda _: device))
    (part,) = found.parts
    assert (found.measured, found.outcome) == (pytest.approx(0.947, abs=0.005), outcome)
    assert (part.measured, part.outcome) == (pytest.approx(1 / (1 + other_frac), rel=0.01), outcome)
    assert ("The settled time, over the device's own: " in found.why) == (outcome == "differs")


def test_a_device_without_a_clock_of_its_own_leaves_the_mend_untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeAsync, "timer", lambda _: None)
    found = row("M2", laboratory(step=clock_step, open=lambda _: FakeAsync()))
    assert found.outcome == "cannot-tell"
    assert found.parts[0].measured is None


@pytest.mark.parametrize(("launch_ns", "outcome"), [(5_000, "holds"), (60_000, "differs")])
def test_kernels_outlive_their_launch_or_do_not(launch_ns: int, outcome: str) -> None:
    assert row("M2", laboratory(recorded=(launches(launch_ns=launch_ns, delay_ns=4_000),))).outcome == outcome


@pytest.mark.parametrize(("wait_ns", "outcome"), [(200_000, "holds"), (0, "differs"), (None, "cannot-tell")])
def test_one_synchronise_mends_it_or_does_not(wait_ns: int | None, outcome: str) -> None:
    """Kernels of 2.5 ms, all launched before one wait: it returns when they are done, or at once."""
    trace = launches(kernel_ns=2_500_000, wait_ns=wait_ns and 2_500_000)
    found = row("M2", laboratory(recorded=(trace,)))
    assert (found.measured, found.outcome) == (1, outcome)
    assert ("Kernels that had ended when a synchronise" in found.why) == (outcome != "holds")


def test_another_makers_calls_are_told_and_do_not_count() -> None:
    """The claim is of CUDA; kernels that were over when their launch returned are told with both lengths."""
    cuda, other = launches(launch_ns=60_000, delay_ns=4_000), launches(call="hipLaunchKernel")
    found = row("M2", laboratory(recorded=(cuda, other)))
    assert (found.measured, found.outcome) == (0, "differs")
    assert "Launched by another maker's calls, and not counted: 100.0 % in the median of 1 trace." in found.why
    assert (
        "20 rows of 3.00 µs in the median, launched by calls of 60.0 µs, so that the work was over before" in found.why
    )
    assert "had ended: 20 rows of one trace, 20 kernels." not in found.why
    assert row("M2", laboratory(recorded=(other,))).outcome == "needs-device"


def test_the_chips_that_count_are_named() -> None:
    named, silent = launches(multiprocessors=4), launches()
    found = row("M2", laboratory(recorded=(named, silent)))
    assert "Chips: made (1 trace without a name)." in found.why
    assert "Chips: " not in row("M2", laboratory(recorded=(silent,))).why


def test_a_synchronise_is_told_with_its_number() -> None:
    found = row("M2", laboratory(recorded=(launches(), launches())))
    assert "100.0 % of the kernels launched before it had ended: 2 traces, 40 kernels." in found.why


@pytest.mark.parametrize(("device", "outcome"), [(FakeLazy(), "holds"), (FakeSync(), "differs")])
def test_a_plain_timer_sees_nothing_where_calls_are_recorded(device: FakeDevice, outcome: str) -> None:
    found = row("M3", laboratory(step=clock_step, open=lambda _: device))
    assert (found.outcome, f"Taken on the device {device.name}." in found.why) == (outcome, True)
    assert (found.untested, found.untested_parts) == ("", ())


def test_another_lazy_backend_is_not_xla_itself() -> None:
    def without_xla(name: str) -> FakeDevice:
        return FakeLazy() if name == "lazy" else missing(name)

    found = row("M3", laboratory(step=clock_step, open=without_xla))
    assert (found.outcome, found.untested_parts) == ("holds", ("XLA itself",))
    assert found.untested.startswith("XLA itself (the number is from PyTorch's own lazy backend; ")


@pytest.mark.parametrize(
    ("device", "outcome", "ratio"), [(FakeAsync(), "holds", 25 / 20), (FakeSync(), "differs", 1.0)]
)
def test_back_to_back_saves_what_runs_beside(device: FakeDevice, outcome: str, ratio: float) -> None:
    """5 µs of host time lie beside 20 µs of work, or before it."""
    names = SimpleNamespace(randn=lambda _: None, add=lambda *_: device.run(host_ns=5_000, device_ns=20_000))
    found = row("M4", laboratory(device, operators=names))
    assert found.outcome == outcome
    assert found.measured == pytest.approx(ratio, rel=0.01)
    assert f"in blocks of n = {(found.figures or {})['n']} calls each takes" in found.why
    assert "One call with a clock of its own, and settled, takes 25.0 µs; " in found.why
    assert f"of the 25.0 µs are saved, which is {format_frac(1 - 1 / (found.measured or 1))}" in found.why
    assert set(found.untested_parts) == {"a device that computes beside the host", "warming up off the clock"}
    (spread,) = found.parts
    assert (spread.measured, spread.outcome) == (pytest.approx(4 * ratio - 4, abs=0.05), outcome)
    assert ("Most of it is paid at every call all the same" in found.why) == (outcome == "differs")


@pytest.mark.parametrize(("ns", "outcome"), [(50_000, "differs"), (142_000, "holds"), (400_000, "differs")])
def test_a_layer_takes_what_was_planted(ns: int, outcome: str) -> None:
    device = FakeSync()
    found = row("M5", laboratory(device, operators=planted_models(device, lambda _: ns)))
    assert (found.measured, found.outcome) == (pytest.approx(ns), outcome)


@pytest.mark.parametrize(("row_ns", "sets", "share"), [(2_000, "arithmetic", "1.6 %"), (0, "issuing", "100.0 %")])
def test_what_sets_the_time_of_a_layer_is_measured(row_ns: int, sets: str, share: str) -> None:
    """Each row takes 2 µs, or all of them together 142 µs; a layer of 1 × 1 has one row."""
    device = FakeSync()
    found = row("M5", laboratory(device, operators=planted_models(device, lambda rows: rows * row_ns or 142_000)))
    assert f"{share} of the " in found.why
    assert f" µs: it is the {sets} that sets the time here." in found.why
    assert "Its arithmetic, 33.6 million FLOP, comes to " in found.why


@pytest.mark.parametrize(("linked", "outcome"), [(20, "holds"), (10, "differs"), (0, "differs")])
def test_one_timeline_needs_the_launches(linked: int, outcome: str) -> None:
    found = row("M6", laboratory(recorded=(launches(linked=linked),)))
    assert (found.measured, found.outcome) == (linked / 20, outcome)
    assert f"Of 20 device rows in all, {20 - linked} have no launch in their file and 0 begin before it." in found.why


def test_kernels_before_their_launch_are_no_timeline() -> None:
    found = row("M6", laboratory(recorded=(launches(delay_ns=-50_000),)))
    assert (found.measured, found.outcome) == (0, "differs")
    assert "0 have no launch in their file and 20 begin before it." in found.why


def test_traces_that_a_median_hides_are_counted_and_named() -> None:
    traces = [replace(launches(linked=linked), name=f"of {linked}") for linked in (20, 20, 20, 10, 0)]
    found = row("M6", laboratory(recorded=tuple(traces)))
    assert found.measured == 1
    assert "2 of the 5 traces lie outside of the range by themselves; the least is 0.0 % (of 0), the most 100.0 %" in (
        found.why
    )


@pytest.mark.parametrize(("once_ns", "outcome"), [(5 * NS_PER_MS, "holds"), (0, "differs")])
def test_the_first_step_pays_what_was_planted(once_ns: int, outcome: str) -> None:
    device = FakeSync()
    found = row("M7", laboratory(device, operators=planted_models(device, lambda _: 100_000, once_ns=once_ns)))
    assert (found.measured, found.outcome) == (pytest.approx((200_000 + once_ns) / 200_000), outcome)
    assert "While the profiler records, a step takes 300 µs: 50.0 % of a step more" in found.why
    assert found.taken.startswith("one first call; of steady ones ")
    assert found.taken.endswith("; 20 recorded ones")
    assert found.untested_parts == ("that the steps a schedule records are steady",)


@pytest.mark.parametrize(
    ("numbers", "right", "outcome"), [((2, 3, 4), 1.0, "holds"), ((0, 1, 2, 3, 4), 0.6, "differs")]
)
def test_a_schedule_leaves_out_the_first_steps_or_does_not(
    numbers: tuple[int, ...], right: float, outcome: str
) -> None:
    device = FakeSync()
    names = planted_models(device, lambda _: 100_000, once_ns=5 * NS_PER_MS)
    found = row("M7", laboratory(device, operators=names, scheduled_steps=lambda _: numbers))
    assert found.outcome == outcome
    assert [part.measured for part in found.parts][1] == pytest.approx(right)
    assert f"it recorded {', '.join(map(str, numbers))}." in found.why


@pytest.mark.torch
def test_the_profiler_is_asked_what_a_schedule_records() -> None:
    torch = pytest.importorskip("torch")
    called = []
    assert laboratory_module._scheduled_steps(lambda: called.append(torch.ones(2) + 1)) == (2, 3, 4)
    assert len(called) == 5


@pytest.mark.torch
def test_the_list_of_autocast_is_torchs_own() -> None:
    pytest.importorskip("torch")
    assert laboratory_module._listed("mm", "CPU")
    assert not laboratory_module._listed("neg", "CUDA")


@pytest.mark.parametrize(("recorded_ns", "outcome"), [(300_000, "holds"), (200_000, "differs")])
def test_recording_skews_a_step_or_does_not(recorded_ns: int, outcome: str) -> None:
    device = FakeSync()
    names = planted_models(device, lambda _: 100_000, once_ns=5 * NS_PER_MS)
    found = row("M7", laboratory(device, operators=names, recorded_steps_ns=lambda *_: [recorded_ns] * 20))
    assert found.outcome == outcome
    assert ("A step while it is recorded, over a steady one: 1.00×" in found.why) == (outcome == "differs")


def test_a_recorder_without_checks_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    device = FakeSync()
    lab = laboratory(device, operators=planted(device))
    found = lab.time(lambda: device.run(host_ns=1_000))
    monkeypatch.setattr(Laboratory, "time", lambda *_: found)
    whole = row("M11", lab)
    assert whole.outcome == "holds"
    assert whole.why.startswith("Came out so: no provenance, an empty provenance, ")
    monkeypatch.setattr(measuring, "Measurement", lambda **_: None)
    careless = row("M11", lab)
    assert (careless.measured, careless.outcome) == (pytest.approx(4 / 7), "differs")
    assert "Came out otherwise: no provenance, an empty provenance, a word for provenance." in careless.why
    monkeypatch.setattr(measuring, "Provenance", lambda **_: None)
    assert row("M11", lab).measured == 0


@pytest.mark.torch
class TestNumbers:
    """What torch's own numbers are asked, with others put in their place."""

    def lab(self, **instead: Any) -> Laboratory:
        torch = pytest.importorskip("torch")
        from referee.device.registry import open_device

        names = SimpleNamespace(**{name: getattr(torch, name) for name in dir(torch) if not name.startswith("__")})
        for name, function in instead.items():
            setattr(names, name, function)
        return Laboratory(device=open_device("cpu"), plan=PLAN, operators=names)

    def test_what_autocast_does_is_looked_at(self) -> None:
        import torch

        def widened(name: str) -> Callable[..., Any]:
            return lambda x, *rest: getattr(torch, name)(x.float(), *rest)

        as_it_is = row("M8", self.lab())
        lacking = [name for name in ("sum", "softmax", "exp") if name in as_it_is.why.partition("inputs here:")[2]]
        assert as_it_is.why.partition("allows. ")[2].startswith(
            f"{round(7 * (as_it_is.measured or 0))} of 7 do so: mm, conv2d"
        )
        named = replace(self.lab(), listed=lambda name, device: (name, device) == ("exp", "CUDA"))
        if "exp" in lacking:
            assert "the list for CPU has none of them and the list for CUDA has exp of them." in row("M8", named).why
        found = row("M8", self.lab(**{name: widened(name) for name in lacking}))
        assert (found.measured or 0) - (as_it_is.measured or 0) == pytest.approx(len(lacking) / 7)
        functional = SimpleNamespace(
            layer_norm=lambda x, shape: torch.nn.functional.layer_norm(x.float(), shape),
            mse_loss=lambda a, b: torch.nn.functional.mse_loss(a.float(), b.float()),
        )
        wide = {name: widened(name) for name in ("sum", "softmax", "exp")}
        listed = row("M8", self.lab(nn=SimpleNamespace(functional=functional), **wide))
        assert (listed.measured, listed.outcome) == (1, "holds")
        assert "list for CPU" not in listed.why
        low = row("M8", self.lab(mm=lambda a, b: a + b))
        assert (low.measured or 0) < (as_it_is.measured or 0)

    @pytest.mark.parametrize(("shift", "outcome"), [(0, "holds"), (20, "differs")])
    def test_scaling_saves_what_fits_the_scale(self, shift: int, outcome: str) -> None:
        import torch

        found = row("M9", self.lab(exp2=lambda e: torch.exp2(e - shift)))
        assert found.outcome == outcome
        left = "none" if outcome == "holds" else f"{(found.figures or {})['lost_scaled']:,}"
        assert f"Of 10,000 gradients all are lost as they are, and {left} once scaled." in found.why

    @pytest.mark.parametrize(("shift", "outcome"), [(0, "holds"), (100, "differs")])
    def test_bf16_has_a_range_too(self, shift: int, outcome: str) -> None:
        import torch

        assert row("M10", self.lab(exp2=lambda e: torch.exp2(e - shift))).outcome == outcome

    def test_a_range_that_is_another_differs(self) -> None:
        import torch

        found = row("M10", self.lab(bfloat16=torch.float16))
        assert [part.outcome for part in found.parts] == ["differs", "differs", "holds"]
        assert (
            "The least and the largest normal number of bf16 are 6.1e-05 and 6.55e+04, of float32 1.18e-38" in found.why
        )
