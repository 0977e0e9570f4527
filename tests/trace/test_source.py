"""Where traces come from: archives, encodings, standard input, patterns, remote stores."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import tarfile
import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard

from referee.errors import PackageMissing, TraceError
from referee.trace import unpack
from referee.trace.builder import TraceBuilder
from referee.trace.details import details_of
from referee.trace.reader import read_trace
from referee.trace.source import find_traces
from referee.trace.unpack import Scratch


def some(count: int = 400) -> bytes:
    builder = TraceBuilder()
    for index in range(count):
        builder.op(f"aten::op{index % 7}", index * 1000, 500)
    return builder.to_json()


def tar_of(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zip_of(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def zst(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


PACKED = {
    "gz": lambda data: gzip.compress(data),
    "gz with padding": lambda data: gzip.compress(data) + bytes(512),
    "zst": zst,
    "zst of two frames": lambda data: zst(data[:1000]) + zst(data[1000:]),
    "zip": lambda data: zip_of({"a.json": data}),
    "zip with others": lambda data: zip_of({"read.me": b"no trace", "deep/a.json": data}),
    "tar": lambda data: tar_of({"a.json": data}),
    "tar.gz of gz": lambda data: gzip.compress(tar_of({"x/a.json.gz": gzip.compress(data), "notes": b"-"})),
    "utf-16": lambda data: data.decode().encode("utf-16"),
    "utf-16-be without a mark": lambda data: data.decode().encode("utf-16-be"),
    "utf-8 with a mark": lambda data: b"\xef\xbb\xbf" + data,
    "gz of utf-16": lambda data: gzip.compress(data.decode().encode("utf-16-le")),
}


@pytest.mark.parametrize("form", PACKED)
def test_every_form_gives_the_same_trace(form: str, tmp_path: Path):
    path = tmp_path / "trace.bin"
    path.write_bytes(PACKED[form](some()))
    trace = read_trace(path)
    assert trace.events == 400
    assert trace.names == tuple(f"aten::op{index}" for index in range(7))
    assert ("repaired" in [finding.code for finding in trace.findings]) == ("utf-16" in form)


def test_a_member_is_named_behind_an_exclamation_mark(tmp_path: Path):
    path = tmp_path / "all.tar.gz"
    path.write_bytes(gzip.compress(tar_of({"rank0.json": some(3), "rank1.json": some(5)})))
    assert read_trace(f"{path}!rank1.json").events == 5
    with pytest.raises(TraceError, match=r"holds 2 files.*rank0\.json, rank1\.json"):
        read_trace(path)
    with pytest.raises(TraceError, match=r"no member 'rank2\.json'"):
        read_trace(f"{path}!rank2.json")


@pytest.mark.parametrize("form", ["gz", "zst", "tar", "zip", "tar.gz of gz"])
def test_cut_in_the_middle(form: str, tmp_path: Path):
    packed = PACKED[form](some(40_000))
    path = tmp_path / "cut"
    cut = len(packed) * 2 // 3
    path.write_bytes(packed[:cut])
    trace = read_trace(path)
    assert 0 < trace.events < 40_000
    (told,) = [finding for finding in trace.findings if finding.code == "truncated"]
    assert told.evidence["file_byte"] == cut
    assert f"at byte {cut} of the file" in told.message
    assert told.evidence["events"] == trace.events


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_an_archive_without_files(pack, tmp_path: Path):
    path = tmp_path / "empty"
    path.write_bytes(pack({"a": b""}) if pack is tar_of else pack({}) + b"")
    with pytest.raises(TraceError):
        read_trace(path)


def test_what_unpacks_to_far_too_much_is_refused(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(unpack, "BOMB_BYTES", 1 << 20)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (16 << 20)))
    with pytest.raises(TraceError, match="unpacks to over"):
        read_trace(path)


def test_scratch_goes_to_disk_when_it_grows(monkeypatch):
    monkeypatch.setattr(unpack, "SPILL_BYTES", 1000)
    scratch = Scratch()
    data = os.urandom(5000)
    for offset in range(0, 5000, 300):
        scratch.write(data[offset : offset + 300])
    assert os.pread(scratch.descriptor, 6000, 0) == data
    scratch.close()


def test_standard_input(monkeypatch):
    class Stdin:
        buffer = io.BytesIO(gzip.compress(some()))

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert read_trace("-").events == 400


def test_a_pipe(tmp_path: Path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(some(),))
    writer.start()
    assert read_trace(path).events == 400
    writer.join()


def with_shapes() -> bytes:
    args = {"Input Dims": [[3, 4]], "Input type": ["float"]}
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::relu", "pid": 1, "tid": 1, "ts": 5, "dur": 1, "args": args}
    return json.dumps({"traceEvents": [event]}).encode()


def test_arguments_of_standard_input_are_there(monkeypatch):
    """What comes once only is kept for the second reading, of arguments; a new reading replaces it."""
    for data in (with_shapes(), gzip.compress(with_shapes())):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
        assert details_of(read_trace("-")).operators[0].dims == ((3, 4),)
    with pytest.raises(TraceError, match="is empty"):
        read_trace("-")


def test_arguments_of_a_pipe_are_there(tmp_path: Path):
    """A pipe is opened once: nobody writes to it a second time."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    for _ in range(2):
        writer = threading.Thread(target=path.write_bytes, args=(with_shapes(),))
        writer.start()
        trace = read_trace(path)
        writer.join()
        assert details_of(trace).operators[0].dims == ((3, 4),)


def test_a_remote_store():
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://bucket/trace.json.gz", "wb") as file:
        file.write(gzip.compress(some()))
    assert read_trace("memory://bucket/trace.json.gz").events == 400
    with pytest.raises(TraceError, match=r"memory://bucket/none\.json cannot be read"):
        read_trace("memory://bucket/none.json")


def test_a_store_whose_driver_is_missing(monkeypatch):
    fsspec = pytest.importorskip("fsspec")

    def refuse(*_: object, **__: object) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "open", refuse)
    with pytest.raises(PackageMissing, match=r"^Reading s3://b/x needs a package that is not installed: Install s3fs"):
        read_trace("s3://b/x")


def test_directories_and_patterns(tmp_path: Path):
    for name in ("rank0.json", "rank1.json.gz", "rank10.json.zst", "rank1.json.gz.provenance.json", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    everything = [str(tmp_path / name) for name in ("rank0.json", "rank1.json.gz", "rank10.json.zst")]
    assert find_traces([tmp_path]) == everything
    assert find_traces([f"{tmp_path}/rank*"]) == everything
    assert find_traces([f"{tmp_path}/rank*"], rank=1) == everything[1:2]
    assert find_traces(["-", "s3://a/b*.json"]) == ["-", "s3://a/b*.json"]
    with pytest.raises(TraceError, match="No file matches"):
        find_traces([f"{tmp_path}/*.gzz"])
    with pytest.raises(TraceError, match="rank 7"):
        find_traces([tmp_path], rank=7)
    (tmp_path / "sub").mkdir()
    with pytest.raises(TraceError, match="holds no trace"):
        find_traces([tmp_path / "sub"])


def test_a_rank_that_no_name_states_is_read_from_the_files_heads(tmp_path: Path) -> None:
    """The profiler's own handler names files after machine, process and time."""
    for rank in (3, 12):
        job = {"backend": "nccl", "rank": rank, "world_size": 16, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]}
        text = TraceBuilder().op("aten::mm", 0, 5).metadata(distributedInfo=job).to_json()
        (tmp_path / f"node_{1000 + rank}.17.pt.trace.json").write_bytes(text)
        (tmp_path / f"node_{2000 + rank}.17.pt.trace.json.gz").write_bytes(gzip.compress(text))
    (tmp_path / "other.json").write_bytes(b"{}")
    (tmp_path / "broken.json.gz").write_bytes(b"\x1f\x8bno")
    found = find_traces([tmp_path], rank=12)
    assert [os.path.basename(path) for path in found] == ["node_1012.17.pt.trace.json", "node_2012.17.pt.trace.json.gz"]
    with pytest.raises(TraceError, match="rank 4"):
        find_traces([tmp_path], rank=4)
