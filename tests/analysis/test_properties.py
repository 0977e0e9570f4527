"""What must hold on every trace: conservation, and indifference to where zero lies and to names and numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.analysis.diagnose import diagnose
from referee.analysis.idle import CAUSES
from referee.analysis.study import Study
from referee.records.trace_report import TraceReport

from ..graph import hand_made  # noqa: TID252 - the strategies of the graph tests

scenes = hand_made.wild_scenes() | hand_made.plausible_scenes()


def numbers(report: TraceReport) -> tuple[object, ...]:
    """What of a report must not depend on names, numbers or where zero lies."""
    return (
        report.totals,
        report.idle,
        report.timeline,
        report.queue,
        report.law,
        report.verdict,
        report.losses,
        [(s.wall_ns, s.kernels, s.busy_ns, s.busy_in_step_ns, s.lead_idle_ns, s.tail_idle_ns) for s in report.steps],
        report.remedies,
    )


@settings(max_examples=150, deadline=None)
@given(scene=scenes)
def test_causes_sum_to_idle_and_none_is_negative(scene: hand_made.Scene) -> None:
    study = Study(scene.build())
    idle, totals = study.idle, study.totals
    causes = idle.host_starved_ns + idle.synchronised_ns + idle.dependency_ns + idle.other_ns
    assert causes == totals.idle_ns
    for gaps in study.gaps:
        parts = np.stack([gaps.cause(name) for name in CAUSES])
        assert (parts >= 0).all()
        assert (parts.sum(axis=0) == gaps.length_ns).all()
        assert (gaps.unseen_ns <= gaps.dependency_ns + gaps.other_ns).all()
        assert (gaps.unlinked_ns <= gaps.other_ns).all()
    timeline = study.timeline
    assert timeline.computation_ns + timeline.exposed_communication_ns + timeline.exposed_copy_ns == totals.busy_ns


@settings(max_examples=60, deadline=None)
@given(scene=scenes, shift=st.integers(0, 10**15))
def test_where_zero_lies_does_not_matter(scene: hand_made.Scene, shift: int) -> None:
    assert numbers(diagnose(scene.build())) == numbers(diagnose(scene.build(shift=shift)))


@settings(max_examples=60, deadline=None)
@given(scene=hand_made.plausible_scenes())
def test_names_of_launch_calls_do_not_matter(scene: hand_made.Scene) -> None:
    """Launches are recognised by their links: an unknown name changes nothing but the count of graph launches."""
    renamed = scene.build(rename={"cudaLaunchKernel": "vendorSubmitWork_v2"})
    assert numbers(diagnose(scene.build())) == numbers(diagnose(renamed))


@settings(max_examples=60, deadline=None)
@given(scene=scenes, order=st.permutations([3, 11, 2**40]))
def test_numbers_of_streams_do_not_matter(scene: hand_made.Scene, order: list[int]) -> None:
    renumbered = scene.build(streams=dict(enumerate(order)))
    assert numbers(diagnose(scene.build())) == numbers(diagnose(renumbered))


@settings(max_examples=40, deadline=None)
@given(scene=hand_made.plausible_scenes())
def test_every_step_of_the_law_is_consistent(scene: hand_made.Scene) -> None:
    law = Study(scene.build()).law
    if law.host_ns is not None:
        assert law.predicted_ns == max(law.host_ns, law.device_ns)
        assert law.residual_ns == law.measured_ns - law.predicted_ns
    assert law.device_ns <= max(law.measured_ns, 0)
