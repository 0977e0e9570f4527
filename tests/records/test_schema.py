"""The file format: what is written is read back, what is not ours is told, and nothing is replaced that is no file."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from referee.errors import ProvenanceError, SchemaError, UserError
from referee.records.measurement import Clocks, Measurement, Warmup
from referee.records.provenance import NOT_READ, Provenance, TensorSpec, differences
from referee.records.schema import from_json, load, save, to_json, write_atomically


def provenance(**chip: str | int) -> Provenance:
    return Provenance(
        dtype="float32",
        shapes=(TensorSpec(role="input", shape=(2, 3), stride=(3, 1), dtype="float32", device="cpu"),),
        chip={"model": "A chip", **chip},
        method={"clock": "settled_amortised"},
        software={"torch": "2.13.0"},
        switches={"grad_mode": "grad"},
    )


def measurement(**changes: object) -> Measurement:
    values: dict[str, object] = {
        "name": "step",
        "median_ns": 10.5,
        "ci_low_ns": 10.0,
        "ci_high_ns": 11.0,
        "ci_level": 0.95,
        "iqr_ns": 0.5,
        "floor_ns": 10.1,
        "p95_ns": 12.0,
        "n": 3,
        "n_eff": 2.5,
        "blocks": 3,
        "stop_reason": "precise",
        "clocks": Clocks(enqueue_ns=None, settled_amortised_ns=10.5, settled_per_call_ns=11.0, device_ns=None),
        "naive_ns": 10.5,
        "warmup": Warmup(calls=3, total_ns=100, first_call_ns=80, steady=True),
        "samples_ns": (10.0, 10.5, 11.0),
        "clean": (True, True, False),
        "provenance": provenance(),
    }
    return Measurement(**{**values, **changes})  # type: ignore[arg-type]


def test_a_record_is_read_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    save(measurement(), path)
    assert load(path) == measurement()
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]


def test_a_measurement_cannot_be_without_provenance() -> None:
    with pytest.raises(ProvenanceError):
        measurement(provenance=None)
    with pytest.raises(ProvenanceError, match="dtype"):
        Provenance(dtype="", shapes=(), chip={}, method={"clock": "device"}, software={}, switches={})
    with pytest.raises(ProvenanceError, match="clock"):
        Provenance(dtype="float32", shapes=(), chip={}, method={}, software={}, switches={})
    with pytest.raises(ProvenanceError, match=r"chip\.colour"):
        provenance(colour="green")


def test_what_was_not_read_says_so_and_differences_are_named() -> None:
    one, other = provenance(threads=1), provenance(threads=2)
    assert one.value("chip.l3_cache_bytes") == NOT_READ
    assert one.value("accelerator.name") == NOT_READ
    (found,) = differences(one, other)
    assert (found.path, found.a, found.b) == ("chip.threads", 1, 2)
    assert differences(one, other, ignoring=("chip.threads",)) == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[1]", "no schema"),
        (b'{"schema": 3}', "no schema"),
        (b'{"schema": "referee.nothing/1"}', "does not know"),
        (b'{"schema": "referee.measurement/99"}', "version 99"),
        (b'{"schema": "referee.measurement/1"}', "damaged"),
        (b'{"schema": "referee.measurement/x"}', "does not know"),
    ],
)
def test_what_is_not_ours_is_told_in_one_sentence(text: bytes, says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        from_json(text, source="x.json")


def test_unknown_keys_of_a_file_do_not_matter() -> None:
    text = to_json(measurement()).replace(b'"name":', b'"later": [1], "name":', 1)
    assert from_json(text) == measurement()


def test_what_is_no_regular_file_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    seen: list[bytes] = []
    reader = threading.Thread(target=lambda: seen.append(pipe.read_bytes()))
    reader.start()
    write_atomically(b"content", pipe)
    reader.join(timeout=120)
    assert seen == [b"content"]
    assert pipe.is_fifo()


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_atomically(b"new", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        write_atomically(b"x", tmp_path / "none" / "x.json")
    with pytest.raises(UserError, match="cannot be written"):
        write_atomically(b"x", tmp_path)
