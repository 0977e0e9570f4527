"""The schedule against torch's own, by counting, and by its properties."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.capture.schedule import Phase, Plan
from referee.errors import OptionError

small = st.integers(0, 6)
plans = st.builds(
    Plan.of,
    skip=small,
    wait=small,
    warmup=small,
    active=st.integers(1, 6),
    repeat=st.integers(0, 4),
    skip_first_wait=st.booleans(),
)
listed = st.builds(
    Plan.at,
    st.lists(st.integers(0, 60), min_size=1, max_size=8).map(tuple),
    warmup=small,
    active=st.integers(1, 6),
)


# No deadline: the first example imports torch.
@settings(deadline=None)
@pytest.mark.filterwarnings("ignore:Profiler won't be using warmup")
@given(plans, st.integers(0, 80))
def test_phases_are_those_of_torch(plan: Plan, iteration: int) -> None:
    profiler = pytest.importorskip("torch.profiler")
    p = plan.record
    theirs = profiler.schedule(
        skip_first=p.skip,
        wait=p.wait,
        warmup=p.warmup,
        active=p.active,
        repeat=p.repeat,
        skip_first_wait=int(p.skip_first_wait),
    )
    name = {Phase.IDLE: "NONE", Phase.WARMUP: "WARMUP", Phase.RECORD: "RECORD", Phase.SAVE: "RECORD_AND_SAVE"}
    assert name[plan.phase(iteration)] == theirs(iteration).name


@given(st.one_of(plans, listed), st.integers(0, 80))
def test_recorded_iterations_are_those_whose_phase_records(plan: Plan, iterations: int) -> None:
    by_phase = tuple(i for i in range(iterations) if plan.phase(i) in (Phase.RECORD, Phase.SAVE))
    assert plan.recorded(iterations) == by_phase
    dry = plan.dry_run(iterations)
    assert dry.profiled == sum(plan.phase(i) is not Phase.IDLE for i in range(iterations))
    saves = sum(plan.phase(i) is Phase.SAVE for i in range(iterations))
    assert len(dry.recorded) in (saves, saves + 1)
    assert dry.cut == (iterations > 0 and plan.phase(iterations - 1) in (Phase.WARMUP, Phase.RECORD))


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8), small, st.integers(1, 6))
def test_a_list_records_exactly_what_it_names(steps: list[int], warmup: int, active: int) -> None:
    plan = Plan.at(tuple(steps), warmup=warmup, active=active)
    named = {step + k for step in steps for k in range(active)}
    assert set(plan.recorded(100)) == named
    files = plan.dry_run(100).recorded
    for before, after in pairwise(files):
        assert after[0] - before[-1] > 1, "files that touch must be one"


@given(st.one_of(plans, listed))
def test_needed_is_the_shortest_run_that_completes_the_plan(plan: Plan) -> None:
    needed = plan.needed()
    if needed is None:
        assert plan.record.repeat == 0
        return
    assert not plan.dry_run(needed).cut
    assert plan.recorded(needed) == plan.recorded(needed + 50)
    assert len(plan.recorded(needed - 1)) == len(plan.recorded(needed)) - 1


@given(st.one_of(plans, listed), st.integers(0, 40))
def test_a_plan_that_records_nothing_is_refused(plan: Plan, iterations: int) -> None:
    if plan.recorded(iterations):
        assert plan.length(iterations) == iterations
        return
    with pytest.raises(OptionError, match=f"records from iteration {plan.first_recorded()}"):
        plan.length(iterations)


@given(st.one_of(plans, listed))
def test_a_saved_plan_is_the_same_plan(plan: Plan) -> None:
    assert Plan.from_record(plan.record) == plan


def test_two_waits_two_warmups_and_three_iterations_record_nothing() -> None:
    plan = Plan.of(wait=2, warmup=2, active=2, repeat=1)
    with pytest.raises(OptionError) as caught:
        plan.length(3)
    assert str(caught.value) == (
        "3 iterations are run, but the plan records from iteration 4 on (the first is iteration 0). Run at least 5."
    )


def test_first_early_then_rare() -> None:
    regular = Plan.of(skip=99, wait=4998, warmup=1, active=1, repeat=3, skip_first_wait=True)
    assert regular.recorded(20_000) == (100, 5100, 10_100)
    assert Plan.at((100, 5100, 10_100)).recorded(20_000) == (100, 5100, 10_100)


def test_a_plan_without_end_wants_a_number() -> None:
    with pytest.raises(OptionError, match="without end"):
        Plan.of(repeat=0).length(None)


@pytest.mark.parametrize("wrong", [{"skip": -1}, {"wait": -1}, {"warmup": -2}, {"active": 0}, {"repeat": -1}])
def test_nonsense_is_refused_by_name(wrong: dict[str, int]) -> None:
    with pytest.raises(OptionError, match=next(iter(wrong))):
        Plan.of(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("steps", "warmup", "active"), [((), 1, 1), ((-1,), 1, 1), ((3,), -1, 1), ((3,), 1, 0)])
def test_a_wrong_list_is_refused(steps: tuple[int, ...], warmup: int, active: int) -> None:
    with pytest.raises(OptionError):
        Plan.at(steps, warmup=warmup, active=active)
