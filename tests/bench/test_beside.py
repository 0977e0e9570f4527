"""Work that other threads of the process still do when the call has returned is no part of the number."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pytest

import referee
from referee.bench.beside import busy_beside
from referee.bench.measure import measure
from referee.bench.plan import Plan
from referee.device.fake import FakeAsync, FakeSync
from referee.device.pending import pending
from referee.errors import OptionError
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
    assert busy_beside(FakeAsync()) == 0.0


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
