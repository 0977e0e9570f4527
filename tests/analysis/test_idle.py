"""The causes of idle time, rule by rule, on hand-made traces: expected values by construction."""

from __future__ import annotations

import pytest

from referee.analysis.idle import Gaps
from referee.analysis.study import Study
from referee.trace.builder import TraceBuilder

US = 1_000
MS = 1_000_000


def gap(builder: TraceBuilder, index: int = 0) -> dict[str, int]:
    """The causes of one idle interval that are not zero."""
    gaps = Study(builder.build()).gaps[0]
    return _causes(gaps, index)


def _causes(gaps: Gaps, index: int) -> dict[str, int]:
    names = ("per_op", "loader", "allocator", "one_off", "pause", "synchronised", "dependency", "other", "unseen")
    causes = {name: int(gaps.cause(name)[index]) for name in names}
    assert sum(ns for name, ns in causes.items() if name != "unseen") == int(gaps.length_ns[index])
    return {name: ns for name, ns in causes.items() if ns}


def launched(builder: TraceBuilder, launch: tuple[int, int], row: tuple[int, int], *, stream: int = 7) -> TraceBuilder:
    """One kernel and its launch; times and durations in microseconds."""
    number = len(builder.build().rows) + 1
    builder.launch("cudaLaunchKernel", launch[0] * US, launch[1] * US, correlation=number)
    return builder.kernel("k", row[0] * US, row[1] * US, stream=stream, correlation=number)


def test_rule_1_a_row_without_a_launch_leaves_other() -> None:
    builder = launched(TraceBuilder(), (0, 5), (10, 10)).kernel("k", 100 * US, 10 * US)
    assert gap(builder) == {"other": 80 * US}


def test_rule_2_inside_a_replayed_graph_is_never_host_starved() -> None:
    builder = TraceBuilder().launch("cudaGraphLaunch", 0, 20 * US, correlation=1)
    builder.kernel("a", 30 * US, 10 * US, correlation=1).kernel("b", 45 * US, 10 * US, correlation=1)
    assert gap(builder) == {"other": 5 * US}


def test_rule_3_a_queued_row_after_another_stream_depends_on_it() -> None:
    builder = launched(TraceBuilder(), (0, 5), (10, 50), stream=1)
    launched(builder, (6, 5), (63, 10), stream=2)
    assert gap(builder) == {"dependency": 3 * US}


def test_rule_3_a_queued_row_on_the_same_stream_is_other() -> None:
    builder = launched(TraceBuilder(), (0, 5), (10, 50))
    launched(builder, (6, 5), (63, 10))
    assert gap(builder) == {"other": 3 * US}


def test_rule_3_an_event_wait_between_two_launches_on_a_stream_is_a_dependency() -> None:
    builder = launched(TraceBuilder(), (0, 5), (10, 50))
    builder.launch("cudaStreamWaitEvent", 6 * US, 1 * US)
    launched(builder, (8, 5), (63, 10))
    assert gap(builder) == {"dependency": 3 * US}
    # Issued before the stream's previous launch, it was for that one.
    builder = TraceBuilder().launch("cudaStreamWaitEvent", 0, 1 * US)
    launched(builder, (2, 5), (10, 50))
    launched(builder, (8, 5), (63, 10))
    assert gap(builder) == {"other": 3 * US}


def test_rule_3_a_long_gap_before_a_queued_row_is_unseen() -> None:
    builder = launched(TraceBuilder(), (0, 5), (10, 50))
    launched(builder, (6, 5), (160, 10))
    assert gap(builder) == {"other": 100 * US, "unseen": 100 * US}


def test_rule_4_the_host_part_ends_with_the_bare_latency() -> None:
    """Submitted at 100 (5 µs default latency), started at 112: 85 µs for the host, 7 for nobody."""
    builder = launched(TraceBuilder(), (0, 5), (10, 10))
    launched(builder, (95, 5), (112, 10))
    # λ is the median of the one row launched onto an idle stream: 12 µs, so the whole gap is the host's.
    assert gap(builder) == {"per_op": 92 * US}
    for number in range(3):
        launched(builder, (200 + 50 * number, 5), (208 + 50 * number, 10))
    # Now most such rows start 3 µs after their launch.
    assert gap(builder) == {"per_op": 83 * US, "other": 9 * US}


def test_rule_4_a_row_that_starts_before_its_launch_returns_was_submitted_at_its_start() -> None:
    builder = launched(TraceBuilder(), (0, 5), (2, 8))
    launched(builder, (20, 30), (25, 10))
    assert gap(builder) == {"per_op": 15 * US}


@pytest.mark.parametrize("name", ["cudaStreamSynchronize", "hipDeviceSynchronize", "cuCtxSynchronize", "cudaMemcpy"])
def test_rule_4_a_wait_explains_as_much_as_it_lasted(name: str) -> None:
    """Busy until 50; the wait runs from 20 to 51; the next kernel is submitted at 85: 31 µs of 38 were waited."""
    builder = launched(TraceBuilder(), (0, 5), (10, 40))
    builder.sync(20 * US, 31 * US, name=name)
    launched(builder, (80, 5), (88, 10))
    causes = gap(builder)
    assert causes["synchronised"] == 31 * US
    assert causes["per_op"] == 38 * US - 31 * US


@pytest.mark.parametrize(
    ("start", "length"),
    [(60, 10), (20, 20), (75, 20)],
    ids=["began after the device was idle", "ended long before it was idle", "ends after the launch"],
)
def test_rule_4_other_waits_explain_nothing(start: int, length: int) -> None:
    builder = launched(TraceBuilder(), (0, 5), (10, 40))
    builder.sync(start * US, length * US)
    launched(builder, (80, 5), (88, 10))
    assert "synchronised" not in gap(builder)


def test_rule_4_a_free_waits_only_until_the_device_has_drained() -> None:
    """cudaFree from 40 to 80, busy until 50: 10 µs waited, 30 µs are the allocator's."""
    builder = launched(TraceBuilder(), (0, 5), (10, 40))
    builder.launch("cudaFree", 40 * US, 40 * US)
    launched(builder, (85, 5), (90, 10))
    assert gap(builder) == {"synchronised": 10 * US, "allocator": 30 * US}


def test_rule_4_a_copy_that_covers_its_own_row_is_a_wait() -> None:
    builder = TraceBuilder().launch("cudaMemcpyAsync", 0, 100 * US, correlation=1)
    builder.memcpy(5 * US, 90 * US, correlation=1, name="Memcpy HtoD (Pageable -> Device)")
    builder.launch("cudaLaunchKernel", 110 * US, 5 * US, correlation=2).kernel("k", 116 * US, 10 * US, correlation=2)
    assert gap(builder) == {"synchronised": 21 * US}


def test_rule_4_a_launch_that_loads_code_is_no_wait_although_its_kernel_ran_inside_it() -> None:
    builder = TraceBuilder().launch("cudaLaunchKernel", 0, 100 * US, correlation=1)
    builder.kernel("k", 90 * US, 2 * US, correlation=1)
    builder.launch("cudaLaunchKernel", 110 * US, 5 * US, correlation=2).kernel("k", 116 * US, 10 * US, correlation=2)
    assert gap(builder) == {"per_op": 24 * US}


def test_rule_5_the_loader_in_a_launching_thread_is_input() -> None:
    builder = launched(TraceBuilder(), (0, 5), (10, 10))
    builder.loader(30 * US, 500 * US)
    launched(builder, (600, 5), (605, 10))
    causes = gap(builder)
    assert causes["loader"] == 500 * US
    assert causes["per_op"] == 85 * US
    # A loader in a thread that launches nothing holds nobody up.
    builder = launched(TraceBuilder(), (0, 5), (10, 10))
    builder.loader(30 * US, 500 * US, thread=99)
    launched(builder, (600, 5), (605, 10))
    assert gap(builder) == {"per_op": 585 * US}


def test_rule_5_a_wait_before_the_gap_is_taken_from_the_per_op_part_first() -> None:
    """Host: waits 20-50, loads 60-160, launches at 195. Of 150 µs: 30 waited, 100 loaded, 20 issued."""
    builder = launched(TraceBuilder(), (0, 5), (10, 40))
    builder.sync(20 * US, 30 * US).loader(60 * US, 100 * US)
    launched(builder, (195, 5), (200, 10))
    assert gap(builder) == {"synchronised": 30 * US, "loader": 100 * US, "per_op": 20 * US}


def test_rule_5_an_allocation_is_the_allocators() -> None:
    builder = launched(TraceBuilder(), (0, 5), (10, 10))
    builder.launch("cudaMalloc", 30 * US, 300 * US)
    launched(builder, (400, 5), (405, 10))
    assert gap(builder) == {"allocator": 300 * US, "per_op": 85 * US}


def silent(builder: TraceBuilder, *, holder: str | None = None, after: str | None = None) -> TraceBuilder:
    """Two kernels 10 ms apart with nothing between but, perhaps, an operator that lasts and one that follows."""
    launched(builder, (0, 5), (10, 10))
    if holder is not None:
        builder.op(holder, 30 * US, 9_900 * US)
    if after is not None:
        builder.op(after, 9_950 * US, 10 * US)
    return launched(builder, (10_000, 5), (10_005, 10))


def test_rule_5_a_silent_stretch_is_a_pause() -> None:
    causes = gap(silent(TraceBuilder()))
    assert causes == {"pause": 9_980 * US, "per_op": 5 * US}


def test_rule_5_a_silent_stretch_in_an_operator_that_is_quick_later_is_one_off() -> None:
    builder = silent(TraceBuilder(), holder="aten::convolution")
    assert "one_off" not in gap(builder)
    builder.op("aten::convolution", 20_000 * US, 50 * US)
    assert gap(builder)["one_off"] == 9_900 * US


def test_rule_5_a_silent_stretch_before_compiled_code_is_one_off() -> None:
    builder = silent(TraceBuilder(), after="triton_poi_fused_add_0")
    assert gap(builder)["one_off"] == 9_930 * US


def test_rule_5_a_call_that_takes_milliseconds_is_one_off() -> None:
    builder = launched(TraceBuilder(), (0, 5), (10, 10))
    builder.launch("cudaFuncGetAttributes", 30 * US, 8 * MS)
    launched(builder, (10_000, 5), (10_005, 10))
    causes = gap(builder)
    assert causes["one_off"] == 8 * MS
    assert causes["per_op"] == 9_985 * US - 8 * MS


def test_each_device_has_its_own_idle_time() -> None:
    builder = TraceBuilder().kernel("a", 0, 10 * US, device=0).kernel("b", 20 * US, 10 * US, device=0)
    builder.kernel("c", 5 * US, 10 * US, device=1).kernel("d", 16 * US, 10 * US, device=1)
    study = Study(builder.build())
    assert [int(g.length_ns.sum()) for g in study.gaps] == [10 * US, 1 * US]
    assert study.idle.other_ns == 11 * US


def test_a_trace_without_device_rows_has_no_idle_time() -> None:
    study = Study(TraceBuilder().op("aten::add", 0, 10 * US).build())
    assert study.gaps == ()
    assert study.idle.host_starved_ns == study.idle.other_ns == 0
    assert Study(TraceBuilder().build()).totals.idle_ns == 0
