"""The replay gives the record, answers to change, and edits give what the simulation gives."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from referee.cli.main import main
from referee.errors import CannotTell, OptionError
from referee.graph.build import EdgeKind, build_graph
from referee.graph.path import schedule
from referee.graph.work import work_by_device
from referee.testing import Simulation, Workload, simulate
from referee.trace.builder import TraceBuilder
from referee.trace.columns import Trace
from referee.trace.reader import read_trace
from referee.whatif import edits as make
from referee.whatif.batch import busy_at
from referee.whatif.replay import ask, catalogue, ranked
from referee.whatif.tighten import tighten

US = 1_000

WORKLOADS = {
    "launch-bound": Workload(kernel_ns=2 * US, op_ns=20 * US),
    "compute-bound": Workload(kernel_ns=60 * US, op_ns=5 * US, steps=2),
    "waiting": Workload(kernel_ns=20 * US, op_ns=10 * US, sync_every=10),
}


def simulated(workload: Workload) -> Trace:
    simulation: Simulation = simulate(workload, seed=3)
    return simulation.trace


def window_ns(trace: Trace) -> int:
    return sum(work.window_ns for work in work_by_device(trace))


@pytest.mark.parametrize("name", WORKLOADS)
def test_without_an_edit_the_window_is_the_recorded_one(name: str) -> None:
    trace = simulated(WORKLOADS[name])
    answer = ask(trace, [make.no_sync()])
    assert answer.recorded_ns == window_ns(trace)
    assert answer.replay_error_frac == pytest.approx(0, abs=0.002)
    assert answer.response.all_half == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_faster_device_is_what_the_simulation_makes_of_it(name: str) -> None:
    workload = WORKLOADS[name]
    answer = ask(simulated(workload), [make.device_speed(2.0)]).edits[0]
    truth_ns = window_ns(simulated(replace(workload, kernel_ns=workload.kernel_ns // 2)))
    assert answer.low_ns == pytest.approx(truth_ns, rel=0.01)
    assert answer.low_ns <= answer.step_ns <= answer.high_ns


def test_a_faster_host_is_what_the_simulation_makes_of_it() -> None:
    workload = WORKLOADS["launch-bound"]
    answer = ask(simulated(workload), [make.host_speed(2.0)]).edits[0]
    faster = replace(workload, op_ns=workload.op_ns // 2, launch_ns=workload.launch_ns // 2)
    assert answer.low_ns == pytest.approx(window_ns(simulated(faster)), rel=0.01)


def test_without_waits_is_what_the_simulation_makes_of_it() -> None:
    workload = WORKLOADS["waiting"]
    answer = ask(simulated(workload), [make.no_sync()]).edits[0]
    truth_ns = window_ns(simulated(replace(workload, sync_every=0)))
    assert answer.low_ns == pytest.approx(truth_ns, rel=0.03)
    assert answer.gain_low_frac > 0


def test_a_launch_that_stands_before_a_full_queue_waits_for_the_device() -> None:
    workload = Workload(kernel_ns=60 * US, op_ns=5 * US, steps=3, ops=300, queue_length=128)
    trace = simulated(workload)
    halved = simulated(replace(workload, kernel_ns=30 * US))
    answer = ask(trace, [make.device_speed(2.0)])
    assert answer.edits[0].low_ns == pytest.approx(window_ns(halved), rel=0.02)
    assert not answer.findings


def test_a_perturbed_duration_moves_the_replay_as_it_moves_the_simulation() -> None:
    """No edge stores a start or a rest: one kernel made longer delays what waits for it, and nothing else."""
    trace = simulated(WORKLOADS["compute-bound"])
    graph = tighten(build_graph(trace), trace)
    longer = graph.weight_ns.copy()
    kernel = np.flatnonzero(graph.kind == EdgeKind.DEVICE)[10]
    longer[kernel] += 1_000 * US
    moved = schedule(graph, weight_ns=longer).time_ns - schedule(graph).time_ns
    assert moved.max() == pytest.approx(1_000 * US, abs=20 * US)
    assert moved[graph.time_ns < graph.time_ns[graph.target[kernel]]].max() == 0


@settings(max_examples=25, deadline=None)
@given(
    device=st.floats(0.5, 8), host=st.floats(0.5, 8), names=st.permutations(["device", "host", "sync", "fuse", "amp"])
)
def test_edits_commute(device: float, host: float, names: list[str]) -> None:
    makers = {
        "device": make.device_speed(device),
        "host": make.host_speed(host),
        "sync": make.no_sync(),
        "fuse": make.fuse(),
        "amp": make.low_precision(),
    }
    trace = simulated(Workload(kernel_ns=20 * US, op_ns=10 * US, sync_every=10, steps=1, ops=20))
    chosen = [makers[name] for name in names]
    one, other = ask(trace, chosen).together, ask(trace, sorted(chosen, key=lambda edit: edit.name)).together
    assert one is not None
    assert other is not None
    assert one.low_ns == pytest.approx(other.low_ns, rel=1e-3)


@settings(max_examples=20, deadline=None)
@given(factor=st.floats(1.0, 50.0))
def test_faster_is_never_slower(factor: float) -> None:
    trace = simulated(Workload(kernel_ns=20 * US, op_ns=10 * US, sync_every=7, steps=1, ops=30))
    answer = ask(trace, [make.device_speed(factor), make.host_speed(factor)])
    assert all(edit.high_ns <= answer.replayed_ns + 1 for edit in answer.edits)


def test_the_ranking_puts_the_largest_gain_first() -> None:
    answer = ranked(ask(simulated(WORKLOADS["launch-bound"]), catalogue()))
    assert answer.edits[0].name == "graph"
    assert [edit.step_ns for edit in answer.edits] == sorted(edit.step_ns for edit in answer.edits)


def test_small_kernels_gain_less_from_a_faster_device() -> None:
    small = ask(simulated(Workload(kernel_ns=2 * US, op_ns=1 * US, launch_ns=500)), [make.device_speed(4.0)]).edits[0]
    large = ask(simulated(WORKLOADS["compute-bound"]), [make.device_speed(4.0)]).edits[0]
    assert large.gain_low_frac > small.gain_low_frac


@pytest.mark.parametrize("speed", [0.0, -1.0, float("inf"), float("nan")])
def test_a_speed_that_is_none_is_refused(speed: float) -> None:
    with pytest.raises(OptionError, match="above zero"):
        make.device_speed(speed)


def test_an_empty_trace_cannot_be_replayed() -> None:
    with pytest.raises(CannotTell, match="nothing that could be replayed"):
        ask(TraceBuilder().build(), [make.no_sync()])


def test_a_trace_without_a_device_row_says_nothing_about_the_device() -> None:
    """Neither "no gain" nor "all of it": what was not recorded is not known."""
    build = TraceBuilder().op("aten::add", 0, 10 * US).launch("cudaLaunchKernel", 2 * US, 5 * US)
    with pytest.raises(CannotTell, match="no device row") as told:
        ask(build.op("aten::mul", 20 * US, 10 * US).build(), [make.graph_replay(), make.device_speed(2.0)])
    assert told.value.exit_status == 4


@pytest.mark.traces
def test_recorded_traces_replay_and_answer(traces_dir: Path, recorded: str) -> None:
    try:
        answer = ask(read_trace(traces_dir / recorded), [])
    except CannotTell:
        return
    assert answer.replay_error_frac == pytest.approx(0, abs=0.005)
    assert answer.response.all_half == pytest.approx(0.5, abs=0.03)


@pytest.mark.traces
def test_other_batch_sizes_from_the_recorded_sweep(traces_dir: Path) -> None:
    busy_ns = {}
    for batch in (2, 8, 32, 128):
        trace = read_trace(traces_dir / f"batch_sweep/a100_particle_transformer_b{batch}.json.gz")
        busy_ns[float(batch)] = float(sum(work.busy_ns for work in work_by_device(trace)))
    known = {batch: busy_ns[batch] for batch in (2.0, 8.0)}
    near, far = busy_at(32, known), busy_at(128, known)
    assert near.step_ns == pytest.approx(busy_ns[32], rel=0.10)
    assert near.low_ns <= busy_ns[32] <= near.high_ns
    assert far.low_ns <= busy_ns[128] <= far.high_ns


def test_one_batch_size_is_too_few() -> None:
    with pytest.raises(OptionError, match="two batch sizes"):
        busy_at(32, {8.0: 1e6})


def test_a_row_never_makes_room_for_its_own_launch() -> None:
    """Calls as long as a full queue's whose own short row ends within the stamps' slack: no circle, and replayed."""
    build = TraceBuilder()
    for number in range(20):
        begin = number * 200 * US
        build.launch("cudaLaunchKernel", begin, 4 * US, correlation=2 * number + 1)
        build.kernel("gemm", begin + 6 * US, 20 * US, stream=7, correlation=2 * number + 1)
        build.launch("cudaLaunchKernel", begin + 50 * US, 100 * US, correlation=2 * number + 2)
        build.kernel("short", begin + 150 * US, US, stream=7, correlation=2 * number + 2)
    answer = ask(build.build(), [])
    assert answer.replay_error_frac == pytest.approx(0, abs=0.005)


def test_no_moment_keeps_a_time_of_its_own() -> None:
    """A second thread that nothing recorded started, and a row without a launch: halved with everything else."""
    build = TraceBuilder()
    build.launch("cudaLaunchKernel", 0, 5 * US, correlation=1, thread=1)
    build.kernel("gemm", 10 * US, 20 * US, stream=7, correlation=1)
    build.launch("cudaLaunchKernel", 4_000 * US, 5 * US, correlation=2, thread=2)
    build.kernel("gemm", 4_010 * US, 20 * US, stream=8, correlation=2)
    build.kernel("stray", 6_000 * US, 20 * US, stream=9)
    answer = ask(build.build(), [make.host_speed(2.0)])
    assert answer.replay_error_frac == 0
    assert answer.response.all_half == pytest.approx(0.5, abs=0.001)


def test_threads_that_wait_for_the_device_are_not_tied_to_what_others_do_meanwhile() -> None:
    build = TraceBuilder()
    build.launch("cudaLaunchKernel", 0, 5 * US, correlation=1, thread=1)
    build.kernel("gemm", 10 * US, 900 * US, stream=7, correlation=1)
    build.sync(10 * US, 905 * US, name="cudaStreamSynchronize", thread=1)
    build.launch("cudaLaunchKernel", 920 * US, 5 * US, correlation=2, thread=1)
    build.kernel("gemm", 930 * US, 900 * US, stream=7, correlation=2)
    build.op("aten::other", 200 * US, 300 * US, thread=2)
    build.launch("cudaLaunchKernel", 210 * US, 5 * US, correlation=3, thread=2)
    build.kernel("other", 220 * US, 100 * US, stream=9, correlation=3)
    graph = build_graph(build.build())
    assert not (graph.kind == EdgeKind.THREAD).any()


def test_a_thread_that_goes_on_while_the_other_still_works_waited_for_what_it_did_just_before() -> None:
    """The calling thread of a backward wakes in the middle of the engine's burst."""
    build = TraceBuilder()
    build.op("aten::ones_like", 0, 10 * US, thread=1)
    for number in range(50):
        begin = (100 + 20 * number) * US
        build.op("aten::burst", begin, 18 * US, thread=2)
        build.launch("cudaLaunchKernel", begin + US, 5 * US, correlation=number + 1, thread=2)
        build.kernel("gemm", begin + 10 * US, 5 * US, stream=7, correlation=number + 1)
    build.op("aten::after", 601 * US, 10 * US, thread=1)
    build.launch("cudaLaunchKernel", 603 * US, 5 * US, correlation=99, thread=1)
    build.kernel("after", 620 * US, 5 * US, stream=9, correlation=99)
    trace = build.build()
    graph = build_graph(trace)
    longer = graph.weight_ns.copy()
    third = np.flatnonzero((graph.kind == EdgeKind.HOST) & (graph.time_ns[graph.source] == 140 * US))
    longer[third] += 1_000 * US
    moved = schedule(graph, weight_ns=longer).time_ns - graph.time_ns
    assert schedule(graph).time_ns.tolist() == graph.time_ns.tolist()
    assert moved[graph.time_ns == 601 * US].min() == 1_000 * US


def test_calls_that_end_with_rows_waited_for_room_in_a_short_queue() -> None:
    """A queue of 16 is full as well, though fewer rows than in a deep one stand in it."""
    workload = Workload(kernel_ns=60 * US, op_ns=2 * US, launch_ns=2 * US, steps=1, ops=120, queue_length=16)
    answer = ask(simulated(workload), [make.device_speed(2.0)])
    halved = simulated(replace(workload, kernel_ns=30 * US))
    assert answer.edits[0].low_ns == pytest.approx(window_ns(halved), rel=0.02)


def test_bursts_of_a_second_thread_keep_the_gaps_between_them() -> None:
    """What the second burst waits for is the first one and the gap, not a moment of the calling thread."""
    build = TraceBuilder()
    build.op("aten::before", 0, 10 * US, thread=1)
    for number, begin in enumerate((100, 300, 500)):
        build.op("aten::burst", begin * US, 100 * US, thread=2)
        build.launch("cudaLaunchKernel", begin * US, 50 * US, correlation=number + 1, thread=2)
        build.kernel("gemm", begin * US + 60 * US, 20 * US, stream=7, correlation=number + 1)
    build.op("aten::after", 700 * US, 10 * US, thread=1)
    build.launch("cudaLaunchKernel", 702 * US, 5 * US, correlation=9, thread=1)
    build.kernel("gemm", 710 * US, 20 * US, stream=7, correlation=9)
    graph = build_graph(build.build())
    longer = graph.weight_ns.copy()
    first = np.flatnonzero((graph.kind == EdgeKind.HOST) & (graph.time_ns[graph.source] == 150 * US))
    longer[first] += 40 * US
    moved = schedule(graph, weight_ns=longer).time_ns - graph.time_ns
    assert moved[graph.time_ns >= 500 * US].min() == 40 * US


@pytest.mark.parametrize("name", ["urEnqueueKernelLaunch", "aclrtLaunch", "cudaLaunchKernelFromTheFuture"])
def test_what_a_launch_call_is_called_changes_no_answer(name: str) -> None:
    """The link to its row says what it is: other vendors, and later versions, call it otherwise."""
    trace = simulated(WORKLOADS["launch-bound"])
    renamed = replace(trace, names=tuple(name if text == "cudaLaunchKernel" else text for text in trace.names))
    assert renamed.names != trace.names
    told, again = (ask(one, catalogue()).edits for one in (trace, renamed))
    assert [(edit.name, edit.low_ns, edit.high_ns) for edit in again] == [
        (edit.name, edit.low_ns, edit.high_ns) for edit in told
    ]
    graph = next(edit for edit in told if edit.name == "graph")
    assert graph.high_ns < window_ns(trace)


def test_an_edit_is_asked_of_one_ranks_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``--rank N`` as for ``trace`` and ``diff``; every edit is ``--all``, or ``--rank`` without a number."""
    for rank, workload in enumerate(("launch-bound", "compute-bound")):
        (tmp_path / f"rank{rank}.json").write_bytes(simulate(WORKLOADS[workload], seed=3).file)
    where = str(tmp_path)
    answers = []
    for words in ([where, "--rank", "1", "--all"], ["--rank", str(tmp_path / "rank1.json")]):
        assert main(["whatif", *words, "--json", "-"]) == 0
        answers.append(json.loads(capsys.readouterr().out)["edits"])
    assert answers[0] == answers[1]
    assert len(answers[0]) == len(catalogue())
    for words, said in (
        ([where, "--graph"], "holds 2 traces"),
        ([where, "--rank", "0"], "ask for all with --all"),
        ([where, "--rank", "one"], "this is no rank"),
        (["--graph"], "No trace was named"),
    ):
        assert main(["whatif", *words]) == 2
        assert said in capsys.readouterr().err


def test_what_the_host_computes_stays_whatever_is_done_to_launches() -> None:
    """An optimizer on the host launches nothing: a captured graph does not hold it, and fewer launches leave it."""
    builder, number, at = TraceBuilder(), 0, 0
    for _ in range(4):
        for _ in range(5):
            number += 1
            builder.op("aten::mm", at * US, 8 * US)
            builder.launch("cudaLaunchKernel", (at + 1) * US, 4 * US, correlation=number)
            builder.kernel("mm", (at + 6) * US, 2 * US, correlation=number)
            at += 9
        for _ in range(20):
            builder.op("aten::addcdiv_", at * US, 120 * US)
            at += 121
    trace = builder.build()
    computed_ns = 3 * 20 * 120 * US
    for edit in ask(trace, [make.graph_replay(), make.fewer_launches(1.0)]).edits:
        assert edit.low_ns >= computed_ns


@pytest.mark.parametrize(("name", "hidden"), [("Memcpy DtoD (Device -> Device)", False), ("Memcpy HtoD", True)])
def test_a_copy_within_a_device_hides_behind_nothing(name: str, hidden: bool) -> None:
    builder, free = TraceBuilder(), 0
    for number in range(1, 21):
        builder.op("aten::contiguous", number * 9 * US, 8 * US)
        builder.launch("cudaMemcpyAsync", (number * 9 + 1) * US, 3 * US, correlation=number)
        free = max(free, (number * 9 + 5) * US)
        if number % 2:
            builder.kernel("gemm", free, 110 * US, correlation=number)
        else:
            builder.memcpy(free, 110 * US, name=name, correlation=number)
        free += 110 * US
    answer = ask(builder.build(), [make.overlap_copies()])
    assert (answer.edits[0].low_ns < 0.8 * answer.recorded_ns) == hidden
    assert hidden or answer.edits[0].low_ns == pytest.approx(answer.recorded_ns, rel=0.01)
