"""What is taken out of a shared copy, and what stays."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from referee.errors import OptionError
from referee.trace.builder import TraceBuilder
from referee.trace.reader import parse_trace, read_trace
from referee.trace.redact import redact, redact_trace
from referee.trace.totals import totals

SECRETS = ("mallory", "gpu-box-17", "/data/", "secret_dir", "mallory@example.org", "10.1.2.3", "train_7f3")


def telling() -> TraceBuilder:
    return (
        TraceBuilder(base_ns=1_727_743_122_000_000_001)
        .metadata(
            host_name="gpu-box-17.lab.example",
            username="mallory",
            tw_job="train_7f3",
            traceName="/data/secret_dir/mallory/trace.json",
            INFO=[
                "wrote to /data/secret_dir/x.json on gpu-box-17.lab.example",
                "mail mallory@example.org",
                "10.1.2.3:80",
            ],
        )
        .python("/data/secret_dir/train.py(12): step", 0, 90_000)
        .python("C:\\data\\secret_dir\\loop.py(3): run", 10, 80_000)
        .op("aten::div", 1_000, 20_000, note="by Mallory")
        .launch("cudaLaunchKernel", 2_001, 5_003, correlation=11)
        .kernel("void f<a, b>(x*, y/2)", 9_007, 2_000, correlation=11, grid=[1, 2, 3])
    )


def test_names_and_paths_go_and_the_report_stays():
    data = telling().to_json()
    assert all(secret.encode() in data for secret in SECRETS if secret != "/data/")
    copy, count = redact(data)
    assert count >= 9
    for secret in SECRETS:
        assert secret.encode() not in copy.lower(), secret
    before, after = parse_trace(data), parse_trace(copy)
    assert asdict(totals(before)) == asdict(totals(after))
    assert (before.rows.start_ns == after.rows.start_ns).all()
    assert before.base_ns == after.base_ns
    assert after.names == (
        "train.py(12): step",
        "loop.py(3): run",
        "aten::div",
        "cudaLaunchKernel",
        "void f<a, b>(x*, y/2)",
    )
    assert json.loads(copy)["traceName"] == "trace.json"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('"env": {"AWS_ACCESS": "abc123", "PATHS": ["p1", {"x": "deep9"}]}', "abc123 p1 deep9"),
        ('"hosts": ["gpu-a1", "gpu-b2"]', "gpu-a1 gpu-b2"),
        ('"api_token": "tok-1", "db_password": "pw-2", "cmdline": "run --x y-3"', "tok-1 pw-2 y-3"),
        ('"note": "python run.py --auth-token tok-1 -v"', "tok-1"),
        ('"note": "HF_TOKEN=hunter2x and password: hunter3x"', "hunter2x hunter3x"),
        ('"note": "with hf_abcdefghijklmnop inside"', "hf_abcdefghijklmnop"),
        ('"note": "at fe80:0:0:0:1c2:3ff:fe1:99"', "1c2:3ff"),
        ('"cwd2": "/home/alicia", "note": "Alicia ran this"', "alicia Alicia"),
        ('"f": "/home/Bob Doe/proj/x.py", "note": "C:\\\\Users\\\\Eve Roe\\\\a\\\\b.py"', "Bob Doe Eve Roe"),
        ('"/data/secretdir/x.py": {"lines": 3}, "10.1.2.3": 1', "secretdir 10.1.2.3"),
        ('"name": "f"oo", "x": "y", "host_name": "gpu-box", "z": "/data/mine/x"', "gpu-box mine"),
        ('"name": "/data/mine/trai', "mine"),
        ('"name": "f"oo", "x": "y", "z": "/data/mine/trai', "mine"),
    ],
)
def test_secrets_go_wherever_they_stand(text: str, secret: str):
    copy, _ = redact(
        f'{{{text}, "after": "stays here"}}'.encode() if text.endswith(('"', "}", "]", "1")) else text.encode()
    )
    left = [word for word in secret.split() if word.encode() in copy]
    assert not left, copy
    if b'"after"' in copy:
        assert b'"stays here"' in copy


def test_what_follows_a_telling_list_or_object_stays():
    data = b'{"hosts": [], "a": "x1", "env": {}, "b": "x2", "env": {"k": [1, {}]}, "c": ["x3"], "user": 7, "d": "x4"}'
    assert redact(data) == (data, 0)


def test_words_of_the_profiler_stay_though_a_home_is_called_so():
    data = b'{"a": "/home/kernel/x/y.py", "cat": "kernel", "name": "stream 7", "b": "my token 512 of token::op"}'
    assert redact(data)[0] == data.replace(b"/home/kernel/x/", b"")


def test_a_relative_path_keeps_its_package_apart_from_its_file():
    assert redact(b'["torch/nn/modules/linear.py(1): f"]')[0] == b'["torch/linear.py(1): f"]'


def test_nothing_else_changes():
    data = TraceBuilder().op("aten::add", 0, 1, shape=[[1, 2]], types=["float", "a/b"]).to_json()
    assert redact(data) == (data, 0)


def test_files(tmp_path: Path):
    source, target = tmp_path / "a.json.gz", tmp_path / "b.json.gz"
    source.write_bytes(gzip.compress(telling().to_json()))
    assert redact_trace(source, target) >= 9
    assert read_trace(target).events == 5
    assert not list(tmp_path.glob("*.part*"))
    with pytest.raises(OptionError, match="the trace itself"):
        redact_trace(source, source)
    with pytest.raises(OptionError, match="cannot be written"):
        redact_trace(source, tmp_path / "no" / "folder.json")


def test_recorded_traces_give_the_same_totals_without_their_names(recorded: str, traces_dir: Path):
    if (traces_dir / recorded).stat().st_size > 400_000:
        pytest.skip("the small ones hold every layout")
    before = read_trace(traces_dir / recorded)
    with open(traces_dir / recorded, "rb") as file:
        data = file.read()
    copy, _ = redact(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    assert asdict(totals(parse_trace(copy))) == asdict(totals(before))
    for home in (b"home", b"root"):
        assert b'"/' + home + b"/" not in copy


def test_a_copy_is_packed_as_its_name_says(tmp_path: Path):
    source = tmp_path / "t.json"
    source.write_bytes(telling().to_json())
    for suffix, magic in ((".json.gz", b"\x1f\x8b"), (".json.zst", b"\x28\xb5\x2f\xfd"), (".json", b"{")):
        target = tmp_path / f"copy{suffix}"
        redact_trace(source, target)
        assert target.read_bytes().startswith(magic)
        assert read_trace(target).events == read_trace(source).events


@pytest.mark.parametrize("name", ["copy.zip", "copy.tar.gz", "copy.sqlite", "copy.parquet"])
def test_a_copy_is_no_archive(tmp_path: Path, name: str):
    source = tmp_path / "t.json"
    source.write_bytes(telling().to_json())
    with pytest.raises(OptionError, match=r"suffix says the format"):
        redact_trace(source, tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_database_is_not_copied_as_text(tmp_path: Path):
    source = tmp_path / "t.sqlite"
    source.write_bytes(b"SQLite format 3\0" + bytes(100))
    with pytest.raises(OptionError, match="is a database"):
        redact_trace(source, tmp_path / "copy.json")
