"""What is broken is called by its name: each way a file can be damaged, what is still read, and what is said of it."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
import zlib
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from tests.trace.test_source import some, tar_of, zip_of

from referee.analysis.diagnose import diagnose
from referee.errors import TraceError
from referee.records.finding import Finding
from referee.trace.builder import TraceBuilder
from referee.trace.columns import Trace
from referee.trace.nested import DEEPEST, shallow
from referee.trace.reader import parse_trace, read_trace


def wide(count: int) -> bytes:
    """Events whose text does not pack to nearly nothing."""
    builder = TraceBuilder()
    for index in range(count):
        builder.op(f"aten::op{index * 7919 % 104729}", index * 1009, 500 + index * 31 % 997)
    return builder.to_json()


def read(data: bytes, tmp_path: Path) -> Trace:
    path = tmp_path / "trace.bin"
    path.write_bytes(data)
    return read_trace(path)


def told(trace: Trace) -> dict[str, Finding]:
    """The findings of the reader by their codes."""
    return {finding.code: finding for finding in trace.findings if finding.code != "no-steps"}


# packed data


def test_a_wrong_checksum_loses_nothing(tmp_path: Path):
    packed = bytearray(gzip.compress(some(3)))
    packed[-6] ^= 1
    trace = read(bytes(packed), tmp_path)
    assert trace.events == 3
    finding = told(trace)["bad-checksum"]
    assert set(told(trace)) == {"bad-checksum"}
    assert finding.message.startswith(
        f"The gzip data does not match its checksum at byte {len(packed) - 8} of the file"
    )


def test_a_checksum_that_is_cut_off_loses_nothing(tmp_path: Path):
    packed = gzip.compress(some(3))
    trace = read(packed[:-5], tmp_path)
    assert trace.events == 3
    assert set(told(trace)) == {"bad-checksum"}
    assert "ends before its checksum" in told(trace)["bad-checksum"].message


@pytest.mark.parametrize("cut", [2, 9, 12, 30])
def test_gzip_cut_in_its_header_or_before_any_text(cut: int, tmp_path: Path):
    packed = gzip.compress(some(1000))
    with pytest.raises(TraceError, match=f"in the middle, at byte {cut} of the file") as caught:
        read(packed[:cut], tmp_path)
    assert caught.value.offset == cut
    assert "does not begin with" not in str(caught.value)


def test_gzip_cut_before_the_list_of_events(tmp_path: Path):
    packed = gzip.compress(TraceBuilder().metadata(a="x" * 50, b=[*range(900)]).op("a", 1, 1).to_json())
    with pytest.raises(TraceError, match=r"cannot be read: the gzip data ends in the middle, at byte 200 of the file"):
        read(packed[:200], tmp_path)


def test_gzip_that_breaks_in_its_first_block(tmp_path: Path):
    data = wide(2000)
    stored = gzip.compress(data, 0)
    # Stored blocks of at most 65,535 bytes: the second one's header is damaged.
    stored = bytearray(stored)
    second = 10 + 5 + int.from_bytes(stored[11:13], "little")
    stored[second] = 0xFF
    trace = read(bytes(stored), tmp_path)
    finding = told(trace)["damaged"]
    assert 0 < trace.events < 2000
    assert set(told(trace)) == {"damaged"}
    assert second <= finding.evidence["file_byte"] <= second + 5
    assert finding.evidence["byte"] == int.from_bytes(stored[11:13], "little")
    assert "of the unpacked text" in finding.message


@given(st.data())
def test_inflated_text_is_all_that_comes_before_the_damage(data: st.DataObject):
    from referee.trace.blob import MemoryBlob
    from referee.trace.inflate import gunzip

    class Text:
        consumed: int | None = None

        def __init__(self) -> None:
            self.text = b""

        def write(self, more: bytes) -> None:
            self.text += more

    original = bytes(data.draw(st.lists(st.integers(0, 255), min_size=50, max_size=400)))
    packed = gzip.compress(original)
    cut = data.draw(st.integers(0, len(packed) - 1))
    out = Text()
    damage = gunzip(MemoryBlob(packed[:cut]), out)
    assert damage is not None
    assert damage.byte == cut
    assert original.startswith(out.text)
    # The standard library's inflater is the independent witness.
    if cut > 10:
        assert len(out.text) >= len(zlib.decompressobj(wbits=31).decompress(packed[:cut])) - 1


def test_what_unpacks_to_nothing(tmp_path: Path):
    for packed in (gzip.compress(b""), gzip.compress(b"") + b"oops", zip_of({"a.json": b""})):
        with pytest.raises(TraceError, match="unpacks to nothing"):
            read(packed, tmp_path)


def test_a_zstandard_frame_with_a_wrong_checksum(tmp_path: Path):
    packed = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(some(5)))
    packed[-1] ^= 1
    trace = read(bytes(packed), tmp_path)
    assert trace.events == 5
    assert set(told(trace)) == {"bad-checksum"}


def test_other_bytes_behind_packed_data(tmp_path: Path):
    packed = gzip.compress(some(5))
    trace = read(packed + b"oops", tmp_path)
    assert (trace.events, set(told(trace))) == (5, {"trailing-bytes"})
    assert told(trace)["trailing-bytes"].evidence["byte"] == len(packed)
    assert set(told(read(packed + bytes(512), tmp_path))) == set()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_zip_archive_without_its_directory(method: int, streamed: bool, tmp_path: Path):
    class Pipe(io.RawIOBase):
        """What cannot be searched: sizes are written behind the data."""

        def __init__(self) -> None:
            self.data = b""

        def writable(self) -> bool:
            return True

        def write(self, more: bytes) -> int:  # type: ignore[override]
            self.data += bytes(more)
            return len(more)

    out: io.BytesIO | Pipe = Pipe() if streamed else io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("notes.txt", b"hello " * 100)
        archive.writestr("deep/a.json", some(50))
    packed = out.data if isinstance(out, Pipe) else out.getvalue()
    trace = read(packed[: packed.index(b"PK\x01\x02") + 10], tmp_path)
    assert trace.events == 50
    assert set(told(trace)) == {"truncated"}
    assert "its trace is whole all the same" in told(trace)["truncated"].message


def test_a_zip_member_that_does_not_match_its_checksum(tmp_path: Path):
    packed = bytearray(zip_of({"a.json": some(50)}))
    for mark, at in ((b"PK\x03\x04", 14), (b"PK\x01\x02", 16)):
        packed[packed.index(mark) + at] ^= 1
    trace = read(bytes(packed), tmp_path)
    assert (trace.events, set(told(trace))) == (50, {"bad-checksum"})
    assert "member a.json" in told(trace)["bad-checksum"].message


def test_what_an_archive_cannot_give(tmp_path: Path):
    packed = bytearray(zip_of({"a.json": some(50)}))
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        packed[packed.index(mark) + at] |= 1
    with pytest.raises(TraceError, match=r"a\.json is encrypted"):
        read(bytes(packed), tmp_path)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.json", some(5))
    with pytest.raises(TraceError, match="packed with method 14"):
        read(out.getvalue(), tmp_path)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("c\nd" + "x" * 500, some(5))
    with pytest.raises(TraceError, match=r"c\?dx+… is packed with") as caught:
        read(out.getvalue(), tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    with pytest.raises(TraceError, match="archive without a file"):
        read(zip_of({}), tmp_path)
    with pytest.raises(TraceError, match="no member of it can be found"):
        read(b"PK\x03\x04" + bytes(20), tmp_path)


def test_a_tar_archive_cut_in_its_second_member(tmp_path: Path):
    packed = tar_of({"a.json": some(10), "b.json": some(900)})
    path = tmp_path / "cut.tar"
    path.write_bytes(packed[:20_000])
    assert read_trace(f"{path}!a.json").events == 10
    assert "truncated" in told(read_trace(f"{path}!a.json"))
    assert 10 < read_trace(f"{path}!b.json").events < 900
    with pytest.raises(TraceError, match=r"no member 'c\.json' as far as it can be read"):
        read_trace(f"{path}!c.json")


# the text


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize(
    ("behind", "what"),
    [
        (b"\n# the end", "no part of it"),
        (bytes(700), "zero bytes"),
        (b'\n{"a": 1}', "another document"),
        (b"}", "no part"),
    ],
)
def test_bytes_behind_a_whole_document(bare: bool, behind: bytes, what: str):
    data = some(20)
    if bare:
        data = data[data.index(b"[\n") : data.rindex(b"]") + 1]
    data = data.rstrip()
    trace = parse_trace(data + behind)
    assert trace.events == 20
    assert set(told(trace)) == {"trailing-bytes"}
    finding = told(trace)["trailing-bytes"]
    assert what in finding.message
    assert finding.evidence["byte"] == len(data) + len(behind) - len(behind.lstrip())


def test_two_documents_one_behind_the_other():
    first, second = some(20), some(30)
    trace = parse_trace(first + second)
    assert trace.events == 20
    assert told(trace)["trailing-bytes"].evidence == {"byte": len(first), "bytes": len(second)}


def test_values_nested_too_deeply_are_left_out_and_the_event_is_kept():
    plain = TraceBuilder()
    for index in range(5):
        plain.launch("cudaLaunchKernel", index * 100, 10, correlation=index + 1)
        plain.kernel("k", index * 100 + 20, 30, correlation=index + 1, odd=index)
    data = plain.to_json()
    deep = data.replace(b'"odd": 3', b'"odd": ' + b"[" * 200_000 + b"]" * 200_000)
    trace = parse_trace(deep)
    assert trace.rows.start_ns.tolist() == parse_trace(data).rows.start_ns.tolist()
    assert trace.links.launch_of.tolist() == parse_trace(data).links.launch_of.tolist()
    assert set(told(trace)) == {"too-deep"}


def test_metadata_nested_too_deeply():
    for name in ("before", "behind"):
        text = some(9).decode()
        nested = f'"{name}": ' + '{"a":' * 5000 + "1" + "}" * 5000
        text = text.replace('{"deviceProperties"', "{" + nested + ', "deviceProperties"') if name == "before" else text
        text = text.rstrip()[:-1] + ", " + nested + "}" if name == "behind" else text
        trace = parse_trace(text.encode())
        assert trace.events == 9
        assert set(told(trace)) == {"unread-keys"}
        assert trace.metadata["schemaVersion"] == 1
        assert name in trace.metadata


@pytest.mark.parametrize("depth", [1, DEEPEST - 1, DEEPEST, DEEPEST + 1, 5000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"]}": ', "}"), ("[ ", " ]")])
def test_shallow(depth: int, opening: str, closing: str):
    value = '{"a": ' + opening * depth + "1" + closing * depth + ', "b": "}"}'
    found = shallow("xx" + value + ", more", 2)
    assert found is not None
    text, end = found
    assert end == 2 + len(value)
    assert text.startswith('{"a": ')
    assert text.endswith(', "b": "}"}')
    assert (text == value) == (depth < DEEPEST)
    assert shallow(value[:-1]) is None


def test_zero_bytes_between_and_behind_events():
    data = some(20)
    cuts = [at for at in range(len(data)) if data.startswith(b"},\n", at)]
    holed = data[: cuts[4] + 2] + bytes(4096) + data[cuts[4] + 2 :]
    trace = parse_trace(holed)
    assert trace.events == 20
    assert set(told(trace)) == {"repaired"}
    trace = parse_trace(data[: cuts[9] + 2] + bytes(4096))
    assert trace.events == 10
    assert set(told(trace)) == {"truncated"}
    assert "holds zeros" in told(trace)["truncated"].message


def test_a_list_that_is_closed_too_early():
    data = some(20)
    at = data.index(b"},\n", 900) + 1
    trace = parse_trace(data[:at] + b"]" + data[at:])
    assert trace.events == 20
    assert set(told(trace)) == {"repaired"}


def test_entries_that_are_no_events_are_counted():
    trace = parse_trace(some(3).replace(b'"traceEvents": [', b'"traceEvents": ["a", 5, null, [1], '))
    assert trace.events == 3
    assert told(trace)["skipped-events"].evidence["places"] == 4
    assert "no objects" in told(trace)["skipped-events"].message


def test_a_document_cut_behind_its_list():
    data = some(20).rstrip()
    trace = parse_trace(data[:-1])
    assert trace.events == 20
    assert "all 20 events were read" in told(trace)["truncated"].message


def with_keys_behind() -> bytes:
    """A trace whose keys stand behind its list, as Kineto writes them, with a letter beyond ASCII among them."""
    whole = json.loads(some(20))
    device = {"id": 0, "name": "H100", "numSms": 132}
    behind = {"deviceProperties": [device], "traceName": "a/b\u00e4.json", "count": 12}
    return json.dumps({"traceEvents": whole["traceEvents"]} | behind, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("ends", "keys"),
    [
        (b'"traceName": "a/b', ["deviceProperties"]),
        (b'"H100", "numSms"', []),
        (b'"count": 1', ["deviceProperties", "traceName"]),
        (b'"count": 12', ["deviceProperties", "traceName"]),
        (b', "count": 12\n', ["deviceProperties", "traceName", "count"]),
    ],
)
def test_whole_keys_of_a_tail_that_is_cut(ends: bytes, keys: list[str]):
    data = with_keys_behind()[:-1] + b"\n"
    data = data[: data.index(ends) + len(ends)]
    trace = parse_trace(data)
    assert trace.events == 20
    assert [device.name for device in trace.devices] == ["H100"] * ("deviceProperties" in keys)
    assert set(trace.metadata) == set(keys) - {"deviceProperties"}
    finding = told(trace)["truncated"]
    assert set(told(trace)) == {"truncated"}
    assert all(key in finding.message for key in keys)
    if "count" in keys:
        assert trace.metadata == {"traceName": "a/b\u00e4.json", "count": 12}
        assert "the closing brace and any key before it are missing" in finding.message
    else:
        behind = data[finding.evidence["last_event_end"] :]
        assert behind.startswith(b', "')
        assert f"what stands from byte {len(data) - len(behind)} on was not" in finding.message


@given(st.data())
def test_a_tail_is_read_up_to_any_cut(draws: st.DataObject):
    data = with_keys_behind()
    whole = json.loads(data)
    at = draws.draw(st.integers(data.index(b"]") + 1, len(data) - 1))
    trace = parse_trace(data[:at])
    assert trace.events == 20
    assert all(trace.metadata[key] == whole[key] for key in trace.metadata)
    assert "truncated" in told(trace)


def test_keys_before_the_list_of_a_cut_file():
    builder = TraceBuilder().device_properties("H100", sm_count=132)
    for index in range(20):
        builder.op("aten::add", index * 10, 5)
    data = builder.to_json()
    for cut in (3, 40, 500):
        trace = parse_trace(data[:-cut])
        assert [device.name for device in trace.devices] == ["H100"]
        assert trace.metadata["schemaVersion"] == 1


def test_a_packed_tail_that_is_cut_keeps_its_keys(tmp_path: Path):
    data = with_keys_behind()
    packed = gzip.compress(data + b" " * 10, 0)
    trace = read(packed[: packed.index(b', "count"') + 4], tmp_path)
    assert [device.name for device in trace.devices] == ["H100"]
    assert "all 20 events were read, and behind them deviceProperties" in told(trace)["truncated"].message


def test_a_key_with_escaped_letters():
    data = with_keys_behind()
    trace = parse_trace(data.replace(b'"traceEvents"', b'"\\u0074race\\u0045vents"'))
    assert (trace.events, set(told(trace))) == (20, set())
    assert [device.name for device in trace.devices] == ["H100"]
    other = data.replace(b'"traceEvents"', b'"\\u0074raceEvent"')
    with pytest.raises(TraceError, match="no key traceEvents"):
        parse_trace(other)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("before", ["", "\n "])
def test_wide_text_is_converted_and_its_cut_told(encoding: str, before: str, tmp_path: Path):
    data = (before + with_keys_behind().decode()).encode(encoding)
    assert [device.name for device in read(data, tmp_path).devices] == ["H100"]
    for lost in (1, 2, 3, 5):
        trace = read(data[:-lost], tmp_path)
        assert trace.events == 20
        assert "count" not in trace.metadata
        assert set(told(trace)) == {"repaired", "truncated"}


# what a verdict says of it


def test_a_file_that_ends_before_its_device_rows_says_so():
    builder = TraceBuilder()
    for index in range(50):
        builder.launch("cudaLaunchKernel", index * 10, 5, correlation=index + 1)
    for index in range(50):
        builder.kernel("k", 1000 + index * 10, 5, correlation=index + 1)
    data = builder.to_json()
    verdict = diagnose(parse_trace(data[: data.index(b'"kernel"')])).verdict
    assert (verdict.regime, verdict.undecided_because) == ("cannot-tell", "truncated")
    assert verdict.would_change.startswith("the whole file")


def test_launches_that_share_one_id_are_not_lost_activity():
    builder = TraceBuilder()
    for index in range(50):
        builder.launch("cudaLaunchKernel", index * 10, 5, correlation=1)
        builder.kernel("k", 1000 + index * 10, 5, correlation=1)
    report = diagnose(parse_trace(builder.to_json()))
    assert (report.verdict.regime, report.verdict.undecided_because) == ("cannot-tell", "duplicate-correlation")
    codes = [finding.code for finding in report.findings]
    assert codes.count("duplicate-correlation") == 1
    assert "lost-device-rows" not in codes


@pytest.mark.parametrize("filling", [b" ", b"\n", b"\t \r\n", b"\0", b" ,", b"]", b"}", b"} ", b"[", b"{"])
def test_a_long_filling_behind_the_list_is_passed_in_one_go(filling: bytes, tmp_path: Path):
    """Half a megabyte of it takes no time worth naming; in its square it would take minutes."""
    builder = TraceBuilder()
    builder.op("aten::add", 0, 10)
    # A line break inside a name is no JSON, so that the list is walked event by event.
    events = json.dumps(json.loads(builder.to_json())["traceEvents"]).replace("aten::", "aten:\n:").encode()
    count = 500_000 // len(filling)
    for text in (events + filling * count, events[:-1] + filling * count, events[:-1] + filling * count + b"]"):
        assert len(read(text, tmp_path).rows) == 1
