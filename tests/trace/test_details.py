"""Arguments that are read a second time: of damaged text as of whole, each with its own row."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from referee.trace import pieces
from referee.trace.columns import NONE, Trace
from referee.trace.details import details_of
from referee.trace.reader import read_trace

OPS = 120


def event(number: int, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": f"aten::op{number}",
        "pid": 1,
        "tid": 1,
        "ts": 1000 + 10 * number,
        "dur": 5.5,
        "args": {"Input Dims": [[number, 2], []], "Input type": ["float", ""], "Sequence number": number, **args},
    }


def kernel(number: int) -> dict[str, Any]:
    args = {"device": 0, "stream": 7, "grid": [number, 2, 1], "est. achieved occupancy %": 12.5, "blocks per SM": 0.25}
    return {"ph": "X", "cat": "kernel", "name": f"k{number}", "pid": 0, "tid": 7, "ts": 5000, "dur": 1, "args": args}


def text() -> bytes:
    events = [one for number in range(OPS) for one in (event(number), kernel(number))]
    return json.dumps({"traceEvents": events}).encode()


def of(data: bytes, tmp_path: Path) -> Trace:
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    return read_trace(path)


def check_own_arguments(trace: Trace) -> int:
    """Every operator's and every kernel's arguments are its own; answers how many there are."""
    details = details_of(trace)
    for row, operator in details.operators.items():
        number = int(trace.name_of(row).removeprefix("aten::op"))
        assert operator.dims == ((number, 2), ())
        assert operator.types == ("float", "")
        assert details.sequence[row] == (number, 0) or details.sequence[row] == (number, NONE)
    for row, grid, busy in zip(
        details.launches.rows.tolist(), details.launches.grid.tolist(), details.launches.occupancy_frac, strict=True
    ):
        assert trace.name_of(row) == f"k{grid // 2}"
        assert busy == 0.125
    return len(details.operators) + len(details.launches.rows)


WHOLE = text()
DAMAGED = {
    "whole": (WHOLE, 2 * OPS),
    "no closing brace": (WHOLE[:-1], 2 * OPS),
    "cut in an event": (WHOLE[:-40], 2 * OPS - 1),
    "a control character": (WHOLE.replace(b'"cat": "kernel"', b'"x": "\x01", "cat": "kernel"', 1), 2 * OPS),
    "not UTF-8": (WHOLE.replace(b'"tid": 1,', b'"tid": 1, "x": "\xe9",', 3), 2 * OPS),
    "NaN": (WHOLE.replace(b'"dur": 5.5', b'"dur": 5.5, "x": NaN', 1), 2 * OPS),
    "an entry that is no event": (WHOLE.replace(b"[{", b"[null, {", 1), 2 * OPS),
    "arguments that are none": (WHOLE.replace(b"[{", b'[{"ph": "X", "ts": 1, "dur": 1, "args": null}, {', 1), 2 * OPS),
    "an event lost": (WHOLE.replace(b'"cat": "kernel"', b'"cat" "kernel"', 1), 2 * OPS - 1),
    "text behind the end": (WHOLE + b"xxx", 2 * OPS),
    "a second document": (WHOLE + WHOLE, 2 * OPS),
}


@pytest.mark.parametrize("piece_bytes", [700, 1 << 19])
@pytest.mark.parametrize("form", DAMAGED)
def test_damaged_text_keeps_the_arguments_of_what_was_read(form: str, piece_bytes: int, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE_BYTES", piece_bytes)
    data, count = DAMAGED[form]
    assert check_own_arguments(of(data, tmp_path)) == count


@pytest.mark.parametrize("seed", range(30))
def test_no_row_has_the_arguments_of_another(seed: int, tmp_path: Path, monkeypatch):
    """Structure that is hit at random places moves no argument to another row, however the text is cut."""
    rng = random.Random(seed)
    monkeypatch.setattr(pieces, "PIECE_BYTES", rng.choice([300, 1000, 5000]))
    data = bytearray(WHOLE)
    places = [at for at, byte in enumerate(data) if byte in b'{}[]",:' and at > 40]
    for at in rng.sample(places, rng.randint(1, 6)):
        data[at] = rng.choice(b'{}[]",: \x01\xff')
    trace = of(bytes(data), tmp_path)
    kept = {row for row, operator in details_of(trace).operators.items() if trace.name_of(row).startswith("aten::op")}
    alike = sum(
        trace.name_of(row) == f"aten::op{operator.dims[0][0]}"
        for row, operator in details_of(trace).operators.items()
        if row in kept and operator.dims and operator.dims[0]
    )
    # An event whose own text was hit may have lost its shapes, or those of one number.
    assert alike >= len(kept) - 6


def test_memory_events_of_a_clock_beyond_64_bits(tmp_path: Path):
    """The base time of such a trace is no 64-bit number, and its memory events still lie where they did."""
    base_us = 10**19
    memory = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": base_us + 1007}
    arguments = {"Device Type": 1, "Device Id": 0, "Bytes": 512, "Total Allocated": 1024}
    row = event(0) | {"ts": base_us + 1000}
    for unusable in (None, 5):  # one memory event without a time, one from another age
        events = [row, memory | {"args": arguments}, memory | {"ts": unusable, "args": arguments}]
        found = details_of(of(json.dumps({"traceEvents": events}).encode(), tmp_path)).memory
        assert found.time_ns.tolist() == [7000]
        assert found.change_bytes.tolist() == [512]
