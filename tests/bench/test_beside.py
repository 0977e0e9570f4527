"""Work that other threads of the process still do when the call has returned is no part of the number."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pytest

import referee
from referee.bench.beside import Beside, busy_beside
from referee.bench.compare import compare
from referee.bench.measure import measure
from referee.bench.plan import Plan
from referee.bench.sides import Candidate
from referee.bench.warmup import FirstCall
from referee.device.fake import FakeAsync, FakeSync
from referee.device.pending import pending
from referee.errors import OptionError
from referee.records.finding import Finding
from referee.records.measurement import Measurement
from referee.units import NS_PER_MS

PLAN = Plan(budget_ns=60 * NS_PER_MS, min_ns=20 * NS_PER_MS)


class Watched(FakeSync):
    """A fake whose process has other threads: they compute from the first call on, or all the time, or for a while."""

    def __init__(self, *, share: float, always: bool = False, for_ns: int = 10**12) -> None:
        super().__init__()
        self.share, self.always, self.left_ns = share, always, for_ns

    def busy_frac(self, length_ns: int) -> float:
        self.clock.advance(length_ns)
        if not self.always and not self.ops_recorded:
            return 0.0
        self.left_ns -= length_ns
        return self.share if self.left_ns > 0 else 0.0


def severities(device: Watched) -> list[str]:
    found = measure(lambda: device.run(host_ns=5_000), device=device, plan=PLAN)
    assert (found.median_ns is None) == any(f.severity == "fatal" for f in found.findings)
    return [f.severity for f in found.findings if f.code == "unsettled"]


def test_threads_that_work_on_behind_the_last_call_forbid_the_number() -> None:
    assert severities(Watched(share=0.9)) == ["fatal"]


def test_threads_that_were_busy_before_are_told_and_not_held_against_the_step() -> None:
    assert severities(Watched(share=0.9, always=True)) == ["warning"]


@pytest.mark.parametrize("device", [Watched(share=0.05), Watched(share=1.0, for_ns=200 * NS_PER_MS)])
def test_threads_that_rest_or_spin_out_are_nothing(device: Watched) -> None:
    assert severities(device) == []


def test_a_device_that_computes_by_itself_is_not_asked() -> None:
    assert busy_beside(FakeAsync()) == Beside()


class Parent(FakeSync):
    """A fake whose process has a child that works off what the step leaves it, or computes all the time."""

    def __init__(self, *, left_ns: int = 0, always: bool = False) -> None:
        super().__init__()
        self.left_ns, self.always = left_ns, always
        self.done_ns, self.backlog_ns, self.slept_ns, self._seen_ns = 0, 0, 0, 0

    def _work_off(self) -> None:
        passed_ns, self._seen_ns = self.clock.now_ns - self._seen_ns, self.clock.now_ns
        done_ns = passed_ns if self.always else min(passed_ns, self.backlog_ns)
        self.done_ns += done_ns
        self.backlog_ns -= min(done_ns, self.backlog_ns)

    def busy_frac(self, length_ns: int) -> float:
        self._work_off()
        self.clock.advance(length_ns)
        return 0.0

    def children_ns(self) -> int:
        self._work_off()
        return self.done_ns

    def occupied_ns(self) -> int:
        return self.clock.now_ns - self.slept_ns

    def submit(self) -> object:
        """Leave the child work, and return."""
        self._work_off()
        self.backlog_ns += self.left_ns
        return self.run(host_ns=5_000)

    def wait_for_last(self) -> object:
        """Wait until the child has done what was left to it, and leave it the next piece."""
        self._work_off()
        self.slept_ns += self.backlog_ns
        self.clock.wait_until(self.clock.now_ns + self.backlog_ns)
        return self.submit()

    def wait(self) -> object:
        """Leave the child work and wait for it."""
        output = self.submit()
        self.slept_ns += self.backlog_ns
        self.clock.wait_until(self.clock.now_ns + self.backlog_ns)
        return output


def parents(found: Measurement) -> dict[str, Finding]:
    return {f.code: f for f in found.findings if f.code in ("unsettled", "host-waits", "children-compute")}


def test_processes_that_work_on_behind_the_last_call_forbid_the_number() -> None:
    device = Parent(left_ns=500_000)
    found = measure(device.submit, device=device, plan=PLAN)
    finding = parents(found)["unsettled"]
    assert (finding.severity, found.median_ns) == ("fatal", None)
    assert "children-compute" not in parents(found), "it says how the number is to be taken"
    assert "Child processes of this process used 100.0 % of a processor" in finding.message
    assert "future.result()" in finding.hint


def test_processes_that_keep_up_with_the_calls_are_told_beside_the_number() -> None:
    device = Parent(left_ns=4_000)
    found = measure(device.submit, device=device, plan=PLAN)
    assert found.median_ns == pytest.approx(5_000, rel=0.01)
    told = parents(found)
    assert list(told) == ["children-compute"]
    assert (told["children-compute"].severity, told["children-compute"].evidence["children_frac"]) == (
        "info",
        pytest.approx(0.8, abs=0.05),
    )


def test_processes_that_the_step_waits_for_are_a_part_of_its_time() -> None:
    device = Parent(left_ns=95_000)
    found = measure(device.wait, device=device, plan=PLAN)
    assert found.median_ns == pytest.approx(95_000, rel=0.06)
    told = parents(found)
    assert list(told) == ["host-waits"]
    assert "another process. Child processes used 9" in told["host-waits"].message


def test_a_loader_that_makes_the_next_batch_is_told_and_keeps_its_number() -> None:
    """Each call waits for what was begun by the one before: what is left does not pile up."""
    device = Parent(left_ns=400 * NS_PER_MS)
    found = measure(device.wait_for_last, device=device, plan=Plan(budget_ns=20_000 * NS_PER_MS))
    assert found.median_ns == pytest.approx(400 * NS_PER_MS, rel=0.01)
    finding = parents(found)["unsettled"]
    assert finding.severity == "warning"
    assert "the number is of calls in a row" in finding.message


@pytest.mark.parametrize(("before", "severity"), [(0.0, "fatal"), (0.9, "warning"), (None, "warning")])
def test_what_processes_did_before_the_first_call_decides(before: float | None, severity: str) -> None:
    """The calls that are watched may have left work that is still being done when the timing begins."""
    device = Parent(left_ns=10**9)
    first = FirstCall(ns=5_000, compiles=0, output=device.submit(), children_frac=before)
    found = measure(device.submit, device=device, plan=PLAN, first=first)
    assert parents(found)["unsettled"].severity == severity


class Feeding(Parent):
    """A thread of the process has to take up all that was handed in before the child gets any of it."""

    def __init__(self) -> None:
        super().__init__(left_ns=10**9)
        self.taken_up_ns = 0

    def _work_off(self) -> None:
        if self.taken_up_ns >= 100 * NS_PER_MS:
            super()._work_off()
        self._seen_ns = self.clock.now_ns

    def busy_frac(self, length_ns: int) -> float:
        super().busy_frac(length_ns)
        feeds = self.backlog_ns > 0 and self.taken_up_ns < 100 * NS_PER_MS
        self.taken_up_ns += length_ns * feeds
        return 0.9 * feeds


def test_a_thread_that_feeds_a_process_first_does_not_hide_it() -> None:
    device = Feeding()
    device.done_ns = 1  # the child was started
    found = measure(
        device.submit, device=device, plan=PLAN, first=FirstCall(ns=5_000, compiles=0, output=None, children_frac=0.0)
    )
    assert (parents(found)["unsettled"].severity, found.median_ns) == ("fatal", None)


def test_a_side_of_a_comparison_that_leaves_work_to_processes_is_refused() -> None:
    device = Parent(left_ns=500_000)
    sides = [Candidate(name="a", step=lambda: device.run(host_ns=5_000)), Candidate(name="b", step=device.submit)]
    found = compare(sides, device=device, plan=PLAN)
    assert (found.answer, [f.code for f in found.findings if f.severity == "fatal"]) == ("cannot-tell", ["unsettled"])


class Handle:
    """As a collective hands back."""

    def wait(self) -> None: ...

    def is_completed(self) -> bool:
        return False


@pytest.mark.parametrize("made", [Future, Handle])
def test_a_handle_on_work_elsewhere_is_no_result(made: Callable[[], object]) -> None:
    pytest.importorskip("torch")
    for output in (made(), [1.0, made()], {"work": made()}):
        assert pending(output) is not None
        with pytest.raises(OptionError, match="may go on after the call has returned"):
            referee.bench(lambda output=output: output, budget="50ms")


@pytest.mark.parametrize("output", [None, 1, [1, "a"], {"a": object()}])
def test_what_is_finished_passes(output: object) -> None:
    assert pending(output) is None


def test_what_is_made_as_it_is_asked_for_has_not_begun() -> None:
    for output in (map(abs, [1]), filter(None, [1]), (number for number in [1])):
        found = pending(output)
        assert found is not None
        assert "has not begun" in found[0]
