"""Nesting, integrity, memory timelines and folded stacks of rows written by hand."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from referee.capture.derived import fold_stacks, folded_text, memory_timelines
from referee.capture.integrity import check_integrity
from referee.capture.rows import TraceFile, decode, nest

OPS = frozenset({"cpu_op"})


def row(name: str, start_us: float, dur_us: float, *, cat: str = "cpu_op", tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": start_us, "dur": dur_us, "pid": 1, "tid": tid, "args": args}


def file_of(*rows: dict[str, Any], **top: Any) -> TraceFile:
    file = decode(json.dumps({"traceEvents": list(rows), **top}).encode())
    assert file is not None
    return file


def test_self_times_of_nested_rows() -> None:
    file = file_of(
        row("a", 0, 10), row("b", 1, 4), row("c", 2, 1), row("d", 6, 2), row("e", 20, 1), row("a", 0, 5, tid=2)
    )
    own = {
        (n.event.name, n.event.tid): (n.self_ns, [e.name for e in n.path]) for n in nest(file.events, categories=OPS)
    }
    assert own == {
        ("a", 1): (4000, ["a"]),
        ("b", 1): (3000, ["a", "b"]),
        ("c", 1): (1000, ["a", "b", "c"]),
        ("d", 1): (2000, ["a", "d"]),
        ("e", 1): (1000, ["e"]),
        ("a", 2): (5000, ["a"]),
    }


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20), st.integers(1, 2)), max_size=30))
def test_self_times_add_up_to_what_is_covered(spans: list[tuple[int, int, int]]) -> None:
    file = file_of(*(row("x", start, length, tid=tid) for start, length, tid in spans))
    found = list(nest(file.events, categories=OPS))
    assert len(found) == len(spans)
    assert all(n.self_ns >= 0 for n in found)
    for tid in (1, 2):
        ours = [(s * 1000, (s + d) * 1000) for s, d, t in spans if t == tid]
        tops = [n for n in found if n.event.tid == tid and len(n.path) == 1]
        own = sum(n.self_ns for n in found if n.event.tid == tid)
        assert own == sum(n.event.end_ns - n.event.start_ns for n in tops)
        # What the outermost rows cover is at most the union of all, and all of it where none reaches out of another.
        union = len({ns for a, b in ours for ns in range(a, b, 1000)}) * 1000
        assert own <= union


def test_timestamps_of_an_epoch_keep_their_nanoseconds() -> None:
    (event,) = file_of(row("a", 5106931002485.817, 0.123)).events
    assert (event.start_ns, event.end_ns) == (5106931002485817, 5106931002485940)


def test_what_is_no_json_is_no_file() -> None:
    assert decode(b'{"traceEvents": [{"ph": "X", "name": "a\x01"}]}') is None
    assert decode(b"\xff") is None


class TestIntegrity:
    def test_counts_by_correlation_and_not_by_name(self) -> None:
        file = file_of(
            row("ProfilerStep#3", 0, 50, cat="user_annotation"),
            row("ProfilerStep#x", 0, 50, cat="user_annotation"),
            row("cudaLaunchKernel", 1, 1, cat="cuda_runtime", correlation=7),
            row("cuLaunchKernelEx", 2, 1, cat="cuda_driver", correlation=8),
            row("someNewLaunchCall", 3, 1, cat="cuda_runtime", correlation=9),
            row("cudaGraphLaunch", 4, 1, cat="cuda_runtime", correlation=10),
            row("cudaDeviceSynchronize", 5, 1, cat="cuda_runtime", correlation=11),
            row("k", 10, 1, cat="kernel", correlation=7),
            row("k", 11, 1, cat="kernel", correlation=8),
            row("k", 12, 1, cat="kernel", correlation=9),
            row("orphan", 14, 1, cat="gpu_memcpy", correlation=99),
            row("aten::add", 0, 1),
            droppedEvents=5,
        )
        found = check_integrity(file)
        assert (found.events, found.ops, found.steps_found) == (12, 1, (3,))
        assert (found.launches, found.launches_unmatched) == (4, 1)
        assert (found.device_rows, found.device_rows_unlinked, found.lost) == (4, 1, 5)

    def test_the_name_of_the_launch_call_changes_nothing(self) -> None:
        def with_call(name: str) -> TraceFile:
            return file_of(
                row(name, 1, 1, cat="cuda_runtime", correlation=7), row("k", 10, 1, cat="kernel", correlation=7)
            )

        known = check_integrity(with_call("cudaLaunchKernel"))
        for name in ("cudaLaunchKernelExC", "cuLaunchKernelEx", "cudaGraphLaunch", "hipNewThing"):
            assert check_integrity(with_call(name)) == known
        assert known.device_rows_unlinked == 0

    def test_a_driver_call_inside_a_runtime_call_is_one_launch(self) -> None:
        file = file_of(
            row("cudaLaunchKernel", 1, 4, cat="cuda_runtime", correlation=7),
            row("cuLaunchKernel", 2, 1, cat="cuda_driver", correlation=7),
            row("k", 10, 1, cat="kernel", correlation=7),
        )
        assert check_integrity(file).launches == 1

    def test_operators_under_a_mode_are_repeated(self) -> None:
        file = file_of(
            row("aten::mm", 0, 9), row("PythonDispatchMode", 1, 7), row("aten::mm", 2, 5), row("aten::t", 3, 1)
        )
        assert check_integrity(file).repeated_ops == 1
        assert check_integrity(file_of(row("aten::mm", 0, 9), row("aten::t", 3, 1))).repeated_ops == 0

    def test_an_overload_that_calls_another_is_no_mode(self) -> None:
        """``sum()`` calls ``sum(dim)``, and compiled graphs call ``add`` of a number, which calls that of a tensor."""
        inside = (row("aten::sum", 0, 9), row("aten::sum", 1, 7), row("aten::add", 10, 9), row("aten::add", 11, 7))
        assert check_integrity(file_of(*inside)).repeated_ops == 0
        # Beside a mode's own frames they do not count either; with a third name, no overload explains all of them.
        mode = (row("aten::mm", 20, 9), row("PythonDispatchMode", 21, 7), row("aten::mm", 22, 5))
        assert check_integrity(file_of(*inside, *mode)).repeated_ops == 1
        bare = check_integrity(file_of(*inside, row("aten::t", 20, 9), row("aten::t", 21, 7)))
        assert (bare.repeated_ops, bare.repeated_by_mode) == (3, False)


def memory(ts_us: float, count: int, *, device: int = 0, index: int = -1) -> dict[str, Any]:
    args = {"Bytes": count, "Device Type": device, "Device Id": index}
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": ts_us, "pid": 1, "tid": 1, "args": args}


def test_a_memory_timeline_per_device() -> None:
    file = file_of(memory(3, -100), memory(1, 100), memory(2, 50), memory(5, 8, device=1, index=0), row("a", 0, 1))
    host, device = memory_timelines(file)
    assert (host.device, host.time_ns, host.in_use_bytes) == ("cpu", (0, 1000, 2000), (100, 150, 50))
    assert (host.peak_bytes, host.held_bytes, host.allocations, host.frees) == (150, 50, 2, 1)
    assert host.allocated_bytes == 150
    assert (device.device, device.in_use_bytes) == ("cuda:0", (8,))


def test_freeing_what_was_there_before_is_no_peak() -> None:
    (timeline,) = memory_timelines(file_of(memory(1, -100), memory(2, 30)))
    assert (timeline.in_use_bytes, timeline.peak_bytes, timeline.held_bytes) == ((-100, -70), 0, -70)


def test_stacks_are_folded_with_their_own_time() -> None:
    file = file_of(
        row("train.py(3): step", 0, 10, cat="python_function"),
        row("aten::mm", 2, 3),
        row("aten::mm", 6, 3),
        row("odd;name", 20, 1),
        row("kernel", 0, 5, cat="kernel"),
    )
    folded = fold_stacks(file)
    assert folded == {"train.py(3): step": 4000, "train.py(3): step;aten::mm": 6000, "odd:name": 1000}
    assert folded_text(folded).decode().splitlines()[1] == "train.py(3): step 4000"
