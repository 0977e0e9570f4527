"""The recorder with a window that only takes notes: what is recorded is what the plan names, whatever ends the run."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.capture.recorder import Recorded, Recorder
from referee.capture.schedule import Cycle, Plan
from referee.errors import UserError

small = st.integers(0, 6)
plans = st.builds(
    Plan.of, skip=small, wait=small, warmup=small, active=st.integers(1, 6), repeat=st.integers(0, 4),
    skip_first_wait=st.booleans(),
)  # fmt: skip
listed = st.builds(
    Plan.at,
    st.lists(st.integers(0, 60), min_size=1, max_size=8).map(tuple),
    warmup=small,
    active=st.integers(1, 6),
)


@dataclass
class Notes:
    """A window that writes down which iterations it was on for."""

    first: int
    seen: list[int] = field(default_factory=list)
    running: bool = False
    released: bool = False

    def start(self, iteration: int) -> None:
        assert not self.running
        self.running = True
        self.seen.append(iteration)

    def step(self) -> None:
        assert self.running
        self.seen.append(self.seen[-1] + 1)

    def stop(self) -> None:
        assert self.running
        self.running = False

    def release(self) -> None:
        assert not self.running
        assert not self.released
        self.released = True


class Rig:
    """A recorder on a virtual clock, in which iteration k takes 1,000 + k nanoseconds."""

    def __init__(self, plan: Plan) -> None:
        self.now = 0
        self.windows: list[Notes] = []
        self.files: list[Recorded] = []
        self.settled_at: list[int] = []
        self.recorder = Recorder(
            plan,
            open_window=self.open,
            on_recorded=lambda recorded, _: self.files.append(recorded),
            now_ns=lambda: self.now,
            settle=lambda: self.settled_at.append(self.recorder.iteration),
        )

    def open(self, cycle: Cycle) -> Notes:
        assert not any(window.running for window in self.windows), "two windows at once"
        self.windows.append(Notes(first=cycle.first))
        return self.windows[-1]

    def run(self, iterations: int) -> None:
        self.recorder.begin()
        for number in range(iterations):
            self.now += 1000 + number
            self.recorder.step()


@given(st.one_of(plans, listed), st.integers(0, 80))
def test_files_hold_what_the_dry_run_says(plan: Plan, iterations: int) -> None:
    rig = Rig(plan)
    rig.run(iterations)
    rig.recorder.finish()
    assert tuple(file.iterations for file in rig.files) == plan.dry_run(iterations).recorded
    assert all(window.released for window in rig.windows)
    for file in rig.files:
        assert file.step_ns == tuple(1000 + number for number in file.iterations)
        assert file.incomplete not in file.iterations


@given(st.one_of(plans, listed), st.integers(0, 80))
def test_a_window_is_on_exactly_in_the_phases_that_are_not_idle(plan: Plan, iterations: int) -> None:
    rig = Rig(plan)
    rig.run(iterations)
    on = [number for window in rig.windows for number in window.seen if number < iterations]
    assert len(on) == plan.dry_run(iterations).profiled
    assert on == sorted(set(on))


@given(st.one_of(plans, listed), st.integers(1, 80))
def test_the_iteration_under_way_is_named_where_it_was_being_recorded(plan: Plan, iterations: int) -> None:
    rig = Rig(plan)
    rig.run(iterations)
    under_way = plan.phase(iterations).value in ("record", "save")
    rig.recorder.finish()
    cut = [file.incomplete for file in rig.files if file.incomplete is not None]
    # An incomplete iteration alone makes no file.
    began_before = under_way and plan.phase(iterations - 1).value == "record"
    assert cut == ([iterations] if began_before else [])


@given(st.one_of(plans, listed), st.integers(0, 80))
def test_the_device_is_settled_before_each_first_recorded_iteration_and_nowhere_else(
    plan: Plan, iterations: int
) -> None:
    rig = Rig(plan)
    rig.run(iterations)
    begun = [cycle[0] for cycle in plan.dry_run(iterations + 1).recorded]
    assert rig.settled_at == begun


def test_an_abandoned_cycle_leaves_no_file_and_nothing_running() -> None:
    rig = Rig(Plan.of(wait=0, warmup=0, active=5))
    rig.run(2)
    rig.recorder.abandon()
    rig.recorder.finish()
    assert rig.files == []
    assert rig.windows[0].released


def test_waiting_costs_no_window() -> None:
    rig = Rig(Plan.of(skip=0, wait=1000, warmup=1, active=1))
    rig.run(1000)
    assert len(rig.windows) == 1
    assert rig.windows[0].seen == [1000]


def in_threads(rig: Rig, *, many: int) -> list[str]:
    """Let so many threads of a pool each end an iteration as soon as the next window opens; what they were told."""
    told: list[str] = []

    def end_iteration() -> None:
        try:
            rig.recorder.step()
        except UserError as error:
            told.append(str(error))

    pool = [threading.Thread(target=end_iteration) for _ in range(many)]
    opening = rig.open

    def open_amid_others(cycle: Cycle) -> Notes:
        for thread in pool:
            thread.start()
        return opening(cycle)

    rig.recorder._open_window = open_amid_others
    rig.recorder.begin()
    rig.recorder.step()
    for thread in pool:
        thread.join()
    return told


def test_iterations_that_end_while_a_window_opens_are_refused() -> None:
    rig = Rig(Plan.of(wait=1, warmup=1, active=3))
    told = in_threads(rig, many=40)
    assert len(told) == 40
    assert all("did not all run in the thread in which recording began" in text for text in told)
    with pytest.raises(UserError, match="did not all run"):
        rig.recorder.finish()
    assert rig.files == []
    assert all(window.released for window in rig.windows)


def test_iterations_that_pass_the_beginning_of_a_window_by_are_refused() -> None:
    rig = Rig(Plan.of(wait=2, warmup=1, active=3))
    rig.recorder.begin()
    # Two threads of a pool end an iteration each before either is noticed.
    rig.recorder.iteration += 2
    with pytest.raises(UserError, match="did not all run"):
        rig.recorder.step()
    with pytest.raises(UserError, match="did not all run"):
        rig.recorder.finish()
    assert rig.windows == []


def test_a_window_whose_thread_has_ended_is_switched_off() -> None:
    rig = Rig(Plan.of(wait=1, warmup=0, active=3))
    rig.recorder.begin()
    thread = threading.Thread(target=rig.recorder.step)
    thread.start()
    thread.join()
    with pytest.raises(UserError, match="did not all run"):
        rig.recorder.finish()
    assert [(window.running, window.released) for window in rig.windows] == [(False, True)]
    assert rig.files == []
