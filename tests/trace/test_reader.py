"""The reader: layouts, times, damage and mistakes."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.errors import TraceError
from referee.trace import pieces
from referee.trace.builder import TraceBuilder
from referee.trace.columns import NONE, Kind, Rows, Trace
from referee.trace.reader import parse_trace, read_trace

COLUMNS = tuple(Rows.__dataclass_fields__)


def same(left: Trace, right: Trace) -> bool:
    """Whether two traces say the same, whatever their codes are."""
    columns = all((getattr(left.rows, name) == getattr(right.rows, name)).all() for name in COLUMNS)
    links = all(
        (getattr(left.links, name) == getattr(right.links, name)).all() for name in left.links.__dataclass_fields__
    )
    rest = ("names", "categories", "threads", "steps", "steps_from", "devices", "metadata", "events", "base_ns")
    return columns and links and all(getattr(left, name) == getattr(right, name) for name in rest)


def small() -> TraceBuilder:
    return (
        TraceBuilder(base_ns=1_727_743_122_000_000_001)
        .device_properties("NVIDIA H100", sm_count=132)
        .step(1, 0, 100_000)
        .op("aten::add", 1_000, 20_000, external_id=4)
        .launch("cudaLaunchKernel", 2_001, 5_003, correlation=11, external_id=4)
        .kernel("add_kernel", 9_007, 2_000, correlation=11)
        .memcpy(12_000, 1, correlation=12, stream=20, device=1)
        .memset(13_000, 0, correlation=13)
        .sync(50_000, 999)
        .loader(60_000, 1_000)
        .annotation("forward", 70_000, 5)
        .overhead("CUPTI activity buffer request", 80_000, 9)
        .device_annotation("ProfilerStep#1", 9_007, 2_000)
        .device_sync("Stream Wait Event", 12_500, 1)
        .python("train.py(3): step", 0, 99_000)
        .metadata(record_shapes=1)
    )


def test_the_file_gives_what_the_builder_built(tmp_path):
    path = tmp_path / "small.json"
    path.write_bytes(small().to_json())
    assert same(read_trace(path), small().build())


TIME = st.integers(0, 10**7)
ROW = st.tuples(
    st.sampled_from(["op", "launch", "kernel", "memcpy", "annotation", "step"]), TIME, TIME, st.integers(1, 5)
)


@given(st.lists(ROW, min_size=1, max_size=30), st.integers(0, 2 * 10**18))
def test_any_built_trace_survives_the_file(rows, base_ns):
    builder = TraceBuilder(base_ns=base_ns)
    for kind, start, duration, number in rows:
        if kind == "op":
            builder.op(f'aten::"{number}" é\n}}, {{"ph"', start, duration, thread=number)
        elif kind == "launch":
            builder.launch("cudaLaunchKernel", start, duration, correlation=number)
        elif kind == "kernel":
            builder.kernel("k", start, duration, correlation=number, stream=number)
        elif kind == "memcpy":
            builder.memcpy(start, duration, device=number)
        elif kind == "annotation":
            builder.annotation(f"batch {number}", start, duration)
        else:
            builder.step(number, start, duration)
    assert same(parse_trace(builder.to_json()), builder.build())


@given(st.integers(1, 400))
def test_the_size_of_pieces_does_not_matter(piece_bytes):
    original = pieces.PIECE_BYTES
    builder = small().op('},\n  {"ph": "X", "name": "no event"', 90_000, 5, stack=[{"ph": "X"}, {"ph": "X"}])
    pieces.PIECE_BYTES = piece_bytes
    try:
        assert same(parse_trace(builder.to_json()), builder.build())
    finally:
        pieces.PIECE_BYTES = original


def event(**fields: object) -> dict[str, object]:
    return {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2, **fields}


def read(*events: object, **keys: object) -> Trace:
    return parse_trace(json.dumps({"traceEvents": list(events), **keys}).encode())


def test_gzip_of_several_members(tmp_path):
    data = small().to_json()
    path = tmp_path / "any.name"
    path.write_bytes(gzip.compress(data[:200]) + gzip.compress(data[200:]))
    assert same(read_trace(path), small().build())


def test_a_bare_list_with_times_as_text():
    trace = parse_trace(
        json.dumps([event(ts="1727743122000000.123", dur="0.004"), event(ts="1727743122000001")]).encode()
    )
    assert trace.base_ns == 1727743122000000123
    assert trace.rows.start_ns.tolist() == [0, 877]
    assert trace.rows.end_ns.tolist() == [4, 2877]


def test_scientific_notation_and_more_decimals():
    trace = parse_trace(
        b'{"traceEvents": [{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1.5e3,"dur":1E-2},'
        b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1500.0005,"dur":0.0015}]}'
    )
    assert trace.base_ns == 1_500_000
    assert trace.rows.start_ns.tolist() == [0, 0]
    assert sorted(trace.rows.end_ns.tolist()) == [2, 10]


def test_integers_above_two_to_the_63():
    big = 15514734831341844875
    trace = read(
        event(ts=2**64 * 1000, correlation=1, args={"correlation": big}),
        event(
            ts=2**64 * 1000 + 5, cat="cuda_runtime", name="cudaLaunchKernel", pid=9, tid=big, args={"correlation": big}
        ),
    )
    assert trace.base_ns == 2**64 * 1_000_000
    assert trace.rows.start_ns.tolist() == [0, 5000]
    assert trace.threads[1] == ("9", str(big))
    assert trace.links.launch_of.tolist() == [1, NONE]


def test_times_that_are_none_or_too_far_away_are_left_out_and_said():
    trace = read(event(), event(ts=None), event(ts="soon"), event(ts=10**20), event(dur=10**20), event(ts=3, dur=None))
    assert len(trace.rows) == 2
    assert [f.evidence["events"] for f in trace.findings if f.code == "unusable-times"] == [4]


@given(zeros=st.sets(st.integers(0, 11), max_size=11), first_us=st.integers(86_400_000_000, 2 * 10**15))
def test_starts_of_zero_beside_others_of_an_epoch_are_none(zeros: set[int], first_us: int):
    """Profilers that lost a time have written 0: the trace is not half a century long for it."""
    trace = read(*(event(ts=0 if at in zeros else first_us + at, dur=0 if at in zeros else 5) for at in range(12)))
    assert len(trace.rows) == 12 - len(zeros)
    assert int(trace.rows.end_ns.max()) <= 16_000
    told = [f.evidence["events"] for f in trace.findings if f.code == "unusable-times"]
    assert told == ([len(zeros)] if zeros else [])


def test_a_start_of_zero_among_its_like_is_a_time():
    assert len(read(event(ts=0), event(ts=10), event(ts=3_600_000_000)).rows) == 3
    assert len(read(event(ts=0), event(ts=0)).rows) == 2


def test_begin_and_end_events_nest_by_thread():
    trace = read(
        {"ph": "B", "cat": "cpu_op", "name": "outer", "pid": 1, "tid": 1, "ts": 10},
        {"ph": "B", "cat": "cpu_op", "name": "inner", "pid": 1, "tid": 1, "ts": 20.5},
        {"ph": "B", "cat": "cpu_op", "name": "other", "pid": 1, "tid": 2, "ts": 21},
        {"ph": "E", "pid": 1, "tid": 1, "ts": 30.25},
        {"ph": "E", "name": "outer", "pid": 1, "tid": 1, "ts": 40},
        {"ph": "E", "name": "outer", "pid": 1, "tid": 1, "ts": 50},
    )
    spans = {trace.name_of(row): (int(trace.rows.start_ns[row]), int(trace.rows.end_ns[row])) for row in range(2)}
    assert spans == {"outer": (0, 30_000), "inner": (10_500, 20_250)}
    assert [f.evidence["events"] for f in trace.findings if f.code == "unpaired-events"] == [2]


def test_old_names_of_categories_and_threads_as_text():
    trace = read(
        event(cat="Operator", name="aten::add", pid=5, tid="5", ts=1, dur=50, args={"External id": 2}),
        event(cat="Runtime", name="cudaLaunchKernel", pid=5, tid=5, ts=2, args={"correlation": 3, "external id": 2}),
        event(cat="Kernel", ts=9, tid="stream 7", args={"correlation": 3, "external id": 2}),
        event(cat="Memcpy", ts=19, tid="stream 20", args={"stream": 21, "device": 3}),
    )
    rows = trace.rows
    assert rows.kind.tolist() == [Kind.OPERATOR, Kind.RUNTIME, Kind.KERNEL, Kind.MEMCPY]
    assert rows.device.tolist() == [NONE, NONE, 0, 3]
    assert rows.stream.tolist() == [NONE, NONE, 7, 21]
    assert rows.external_id.tolist() == [2, 2, 2, NONE]
    assert trace.links.launch_of.tolist() == [NONE, NONE, 1, NONE]
    assert trace.links.operator_of.tolist() == [NONE, 0, NONE, NONE]


def test_unknown_categories_are_kept_and_named():
    trace = read(event(cat="quantum_op"), event(cat=None), event())
    assert len(trace.rows) == 3
    found = {f.evidence["category"]: f.evidence["rows"] for f in trace.findings if f.code == "unknown-category"}
    assert found == {"quantum_op": 1, "": 1}


def test_negative_durations_are_said():
    trace = read(event(dur=-3), event(ts=5))
    assert trace.rows.end_ns.tolist() == [0, 6000]
    assert [f.evidence["least_ns"] for f in trace.findings if f.code == "negative-duration"] == [-3000]


@pytest.mark.parametrize(
    "odd",
    [
        {"args": None},
        {"args": [1, 2]},
        {"args": "text"},
        {"name": ["a", {"b": 1}]},
        {"name": None, "cat": 7},
        {"args": {"correlation": None, "stream": [], "device": {}}},
        {"pid": {"a": 1}, "tid": [3]},
        {"ph": 5},
        {"args": {"correlation": [[1]]}},
    ],
)
def test_values_of_unexpected_types_do_not_matter_to_the_rest(odd):
    trace = read(event(), event(**odd), event(ts=3))
    assert trace.events == 3
    assert len(trace.rows) == (2 if "ph" in odd else 3)


def test_nan_and_control_characters_are_read():
    text = (
        b'{"traceEvents": [{"ph":"X","name":"a\x01b","cat":"kernel","pid":0,"tid":7,"ts":1,"dur":2,"args":{"bw":NaN}}]}'
    )
    trace = parse_trace(text)
    assert trace.names == ("a\x01b",)


@given(st.integers(1, 10_000))
def test_truncated_anywhere(cut):
    data = small().to_json()
    first_end = data.index(b"}},", data.index(b"traceEvents")) + 2
    text = data[: 1 + cut * (len(data) - 3) // 10_000]
    if len(text) < first_end:
        with pytest.raises(TraceError) as caught:
            parse_trace(text)
        assert caught.value.exit_status == 2
    else:
        trace = parse_trace(text)
        told = [finding for finding in trace.findings if finding.code == "truncated"]
        assert len(told) == 1
        assert told[0].evidence["byte"] == len(text)
        assert str(len(text)) in told[0].message
        assert trace.events == text.count(b"}}")


def test_truncated_gzip_is_answered(tmp_path):
    builder = TraceBuilder()
    for index in range(5000):
        builder.op(f"aten::op{index * 7919 % 5000}", index * 1000, 500)
    packed = gzip.compress(builder.to_json())
    path = tmp_path / "cut.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    trace = read_trace(path)
    assert 1000 < trace.events < 5000
    assert "truncated" in [finding.code for finding in trace.findings]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"hello, world\n", "is not a trace"),
        (b"   \n", "is not a trace"),
        (b"\x00\x01\x02\x03", "is not a trace"),
        (b"{}", "holds no list of events"),
        (b'{"a": {"traceEvents": [1]}}', "holds no list of events"),
        (b'{"a": "\\"traceEvents\\": ["}', "holds no list of events"),
        (b'{"traceEvents": []}', "holds no events"),
        (b'{"traceEvents": null}', "its traceEvents, at byte 16, is null"),
        (b'{"a": [{"traceEvents": 1}], "traceEvents": "none"}', "its traceEvents, at byte 43, is a text"),
        (b'{"traceEvents": {"ph": "X"}}', "its traceEvents, at byte 16, is an object"),
        (b'{"traceEvents": 7}', "its traceEvents, at byte 16, is a number"),
        (b'{"traceEvents": ["a", "b"]}', "none of the 2 entries of its list is an object, the first, at byte 17"),
        (b"[1, [2], null]", "none of the 3 entries"),
        (b'{"schemaVersion": 1, "devi', "ends in the middle, at byte 26, before its list of events"),
        (b'{"a": {"b": 1', "ends in the middle, at byte 13, before its list of events"),
        (bytes(1000), "holds nothing but zero bytes"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:76\nsize 87\n", "pointer .* git lfs pull"),
        (b"/annex/objects/MD5E-s87--76.json.gz\n", "pointer .* git annex get"),
        (b"\n<!DOCTYPE html>\n<html><body>Not found</body></html>", "web page"),
        (b"[]", "holds no events"),
        (b'{"traceEvents": [', "ends before its first whole event, at byte 17"),
        (b'{"traceEvents": [{"ph": "X", "na', "ends before its first whole event"),
    ],
)
def test_no_trace(tmp_path: Path, content: bytes, said: str):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert re.search(said, str(caught.value))
    assert str(path) in caught.value.message
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("r.nsys-rep", "nsys export --type sqlite"),
        ("r.xplane.pb", "the .trace.json.gz that lies beside it"),
        ("r.perfetto-trace", "traceconv json"),
        ("snapshot.pickle", "memory snapshot"),
    ],
)
def test_files_that_lie_beside_traces_are_named(name: str, said: str, tmp_path: Path):
    (tmp_path / name).write_bytes(b"\x0a\x80\x04binary")
    with pytest.raises(TraceError, match="is not a trace: it is") as caught:
        read_trace(tmp_path / name)
    assert said in str(caught.value)


def test_no_file(tmp_path):
    with pytest.raises(TraceError, match="does not exist"):
        read_trace(tmp_path / "missing.json")
    with pytest.raises(TraceError, match="is a directory"):
        read_trace(tmp_path)


def test_what_stands_around_the_events_is_kept():
    trace = read(event(), deviceProperties=[{"id": 0, "name": "X", "numSms": 8}, "?"], traceName="t", INFO=["a"])
    assert trace.metadata == {"traceName": "t", "INFO": ["a"]}
    assert [(d.ordinal, d.name, d.sm_count) for d in trace.devices] == [(0, "X", 8)]
