"""Ranks of one job by construction: who comes late is known, so who waits, and how long, is known too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from referee.analysis.diagnose import diagnose
from referee.analysis.trace_set import judge_set
from referee.records.provenance import Provenance
from referee.records.trace_report import RankJob, TraceSet
from referee.report.trace_set import compose_trace_set
from referee.trace.builder import TraceBuilder
from referee.trace.columns import Trace
from referee.trace.reader import read_trace

US = 1_000
STEPS = 4


def rank(
    number: int,
    *,
    late_us: int,
    world: int = 2,
    clock_us: int = 0,
    error_us: int | None = 1,
    name: str = "gloo:all_reduce",
    cut_us: int | None = None,
) -> Trace:
    """Steps of 1 ms; the all-reduce begins 200 µs into the step, or later, and ends at 600 µs everywhere.

    That of the last step is ``cut_us`` long, if given, and reaches beyond the step.
    """
    builder = TraceBuilder(source=f"rank{number}.json", base_ns=clock_us * US)
    builder.metadata(distributedInfo={"rank": number, "world_size": world}, host_name=f"h{number}")
    for step in range(STEPS):
        at = (step + 1) * 1000 * US
        builder.step(step, at, 1000 * US)
        builder.op("aten::mm", at, 100 * US)
        took_us = 400 - late_us if cut_us is None or step < STEPS - 1 else cut_us
        builder.annotation(name, at + (200 + late_us) * US, took_us * US, thread=2)
    trace = builder.build()
    if error_us is None:
        return trace
    method = {
        "clock": "profiler",
        "rank": number,
        "world_size": world,
        "clock_offset_ns": clock_us * US,
        "clock_offset_error_ns": error_us * US,
    }
    stated = Provenance(
        chip={}, accelerator=None, dtype="float32", shapes=(), method=method, software={}, switches={}, machine_state={}
    )
    return replace(trace, provenance=stated)


def together(*traces: Trace) -> tuple[TraceSet, RankJob]:
    found = judge_set(traces, [diagnose(trace) for trace in traces])
    assert found.job is not None
    return found, found.job


@pytest.mark.parametrize("error_us", [1, None])
def test_the_late_rank_is_waited_for(error_us: int | None) -> None:
    found, job = together(rank(1, late_us=300, error_us=error_us), rank(0, late_us=0, error_us=error_us))
    assert [share.rank for share in job.ranks] == [0, 1]
    assert (job.collectives, job.waits_for, job.world_size, job.missing) == (STEPS, 1, 2, ())
    assert job.basis == ("durations" if error_us is None else "clocks")
    assert [share.waited_ns for share in job.ranks] == [STEPS * 300 * US, 0]
    assert [share.last for share in job.ranks] == [0, STEPS]
    assert job.ranks[0].waited_frac == pytest.approx(0.3)
    (finding,) = [finding for finding in found.findings if finding.code == "ranks-wait"]
    assert (finding.evidence["rank"], finding.evidence["waits_for"]) == (0, 1)
    assert "Rank 0 spends 30" in finding.message


def test_clocks_that_are_apart_are_laid_on_each_other() -> None:
    _, job = together(rank(0, late_us=0), rank(1, late_us=300, clock_us=5_000_000))
    assert [share.waited_ns for share in job.ranks] == [STEPS * 300 * US, 0]


def test_what_is_within_the_clocks_error_names_nobody() -> None:
    found, job = together(rank(0, late_us=0, error_us=200), rank(1, late_us=300, error_us=200))
    assert (job.waits_for, [share.last for share in job.ranks]) == (None, [0, 0])
    assert "ranks-wait" not in {finding.code for finding in found.findings}


def test_a_little_waiting_is_no_finding() -> None:
    found, job = together(rank(0, late_us=0), rank(1, late_us=50))
    assert job.waits_for == 1
    assert "ranks-wait" not in {finding.code for finding in found.findings}


def test_a_rank_that_is_not_here_is_said() -> None:
    found, job = together(rank(0, late_us=0, world=4), rank(2, late_us=0, world=4))
    assert job.missing == (1, 3)
    (finding,) = [finding for finding in found.findings if finding.code == "ranks-missing"]
    assert finding.message == "The job has 4 ranks, of which 2 are here."


def test_without_a_common_collective_nobody_is_seen_to_wait() -> None:
    _, job = together(rank(0, late_us=0), rank(1, late_us=300, name="gloo:broadcast"))
    assert (job.collectives, job.waits_for) == (0, None)


def test_the_arrival_at_a_collective_that_is_cut_off_counts() -> None:
    found, job = together(rank(0, late_us=0, cut_us=810), rank(1, late_us=300))
    assert (job.collectives, job.cut_collectives, job.unmatched_collectives) == (STEPS, 1, 0)
    assert [share.waited_ns for share in job.ranks] == [STEPS * 300 * US, 0]
    assert [share.last for share in job.ranks] == [0, STEPS]
    text = compose_trace_set(found)
    assert any("Cut off when the profiler stopped: 1; its arrival counts" in str(block) for block in text.blocks)


def test_the_duration_of_a_collective_that_is_cut_off_tells_nothing() -> None:
    found, job = together(rank(0, late_us=0, error_us=None, cut_us=810), rank(1, late_us=300, error_us=None))
    assert (job.collectives, job.cut_collectives, job.unmatched_collectives) == (STEPS - 1, 1, 0)
    assert [share.waited_ns for share in job.ranks] == [(STEPS - 1) * 300 * US, 0]
    assert any("left out, since its duration is not known" in str(block) for block in compose_trace_set(found).blocks)


def test_collectives_that_are_not_everywhere_are_counted() -> None:
    found, job = together(rank(0, late_us=0), rank(1, late_us=300, name="gloo:broadcast"))
    assert (job.collectives, job.unmatched_collectives) == (0, 2 * STEPS)
    assert any(f"left out: {2 * STEPS}." in str(block) for block in compose_trace_set(found).blocks)


def test_two_traces_of_one_rank_are_no_job() -> None:
    twins = rank(0, late_us=0), rank(0, late_us=0)
    assert judge_set(twins, [diagnose(trace) for trace in twins]).job is None


def far_ahead(number: int, *, compute_us: int, op_us: int) -> Trace:
    """A host that issues its four steps within ``op_us`` each and waits for nothing; the device takes far longer.

    A step computes for ``compute_us``, then meets the others: the slower of 400 and 800 µs sets the pace for all.
    """
    builder = TraceBuilder(source=f"rank{number}.json").metadata(distributedInfo={"rank": number, "world_size": 2})
    device_us = 1_000
    for step in range(STEPS):
        at = (100 + step * op_us) * US
        builder.step(step, at, op_us * US)
        builder.launch("cudaLaunchKernel", at, 5 * US, correlation=2 * step + 1)
        builder.kernel("gemm", device_us * US, compute_us * US, correlation=2 * step + 1)
        builder.launch("cudaLaunchKernelExC", at + 10 * US, 5 * US, correlation=2 * step + 2)
        begins_us, meet_us = device_us + compute_us, device_us + 800
        builder.kernel(
            "ncclDevKernel_AllReduce",
            begins_us * US,
            (meet_us + 100 - begins_us) * US,
            stream=9,
            correlation=2 * step + 2,
        )
        device_us = meet_us + 100
    return builder.build()


def test_a_host_that_runs_ahead_does_not_make_the_waiting_more_than_all_there_is() -> None:
    """Walls of 50 µs, 900 µs a step on the device: of these rank 0 waits 400, and its host is further ahead."""
    _, job = together(far_ahead(0, compute_us=400, op_us=50), far_ahead(1, compute_us=800, op_us=700))
    assert (job.collectives, job.unmatched_collectives, job.waits_for) == (STEPS, 0, 1)
    early, late = job.ranks
    assert (early.waited_ns, late.waited_ns) == (STEPS * 400 * US, 0)
    assert early.waited_frac == pytest.approx(400 / 900)
    assert (early.step_ns, late.step_ns) == (900 * US, 900 * US)


def of_groups(number: int, folder: Path, *, alone_us: int) -> Trace:
    """One of four ranks in pairs: each step meets its partner, the later of the two 300 µs after the earlier.

    The first pair computes for 100 and 400 µs, the second for 1,000 and 1,300: it is late to nobody but itself.
    """
    pair = [0, 1] if number < 2 else [2, 3]
    builder = TraceBuilder().metadata(distributedInfo={"rank": number, "world_size": 4})
    for step in range(STEPS):
        at = (step + 1) * 2_000
        builder.step(step, at * US, 2_000 * US)
        builder.launch("cudaLaunchKernelExC", at * US, 5 * US, correlation=step + 1)
        meet_us = 400 if number < 2 else 1_300
        begins = at + alone_us
        group = {"Process Group Name": str(pair[0]), "Process Group Ranks": str(pair)}
        dur = at + meet_us + 50 - begins
        builder.kernel("ncclDevKernel_AllReduce", begins * US, dur * US, correlation=step + 1, **group)
    path = folder / f"rank{number}.json"
    path.write_bytes(builder.to_json())
    return read_trace(path)


def test_collectives_of_different_groups_are_not_held_against_each_other(tmp_path: Path) -> None:
    alone_us = (100, 400, 1_000, 1_300)
    _, job = together(*(of_groups(number, tmp_path, alone_us=us) for number, us in enumerate(alone_us)))
    assert (job.collectives, job.unmatched_collectives) == (2 * STEPS, 0)
    assert [share.waited_ns for share in job.ranks] == [STEPS * 300 * US, 0, STEPS * 300 * US, 0]
    assert [share.last for share in job.ranks] == [0, STEPS, 0, STEPS]
    # A rank whose partner is not here waits for nobody that can be seen.
    _, half = together(*(of_groups(number, tmp_path, alone_us=alone_us[number]) for number in (0, 1, 3)))
    assert [share.waited_ns for share in half.ranks] == [STEPS * 300 * US, 0, 0]
    assert (half.collectives, half.unmatched_collectives) == (STEPS, STEPS)
