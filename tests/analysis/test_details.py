"""The arguments of rows, read on demand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from referee.trace.builder import TraceBuilder
from referee.trace.details import Details, read_details
from referee.trace.reader import read_trace


def made() -> TraceBuilder:
    builder = TraceBuilder()
    builder.op("aten::mm", 5_000, 900, **{"Input Dims": [[4, 8], [8, 2], []], "Input type": ["float", "float", ""]})
    builder.op("aten::cat", 6_000, 900, **{"Input Dims": [[[2], [3]], []], "Input type": ["TensorList", "Scalar"]})
    shape = {"grid": [6, 2, 1], "block": [64, 1, 1], "blocks per SM": 0.5, "est. achieved occupancy %": 25}
    builder.kernel("k", 1_000, 900, **shape).memcpy(2_000, 900, bytes=4096)
    return builder.kernel("odd", 3_000, 900, **{"grid": "?", "blocks per SM": -1, "est. achieved occupancy %": 1e308})


def read(text: bytes, path: Path) -> Details:
    path.write_bytes(text)
    return read_details(read_trace(path))


@pytest.mark.parametrize("packed", [False, True])
def test_launch_shapes_bytes_and_inputs(tmp_path: Path, packed: bool) -> None:
    text = made().to_json()
    found = read(gzip.compress(text) if packed else text, tmp_path / ("t.json.gz" if packed else "t.json"))
    launches = found.launches
    assert launches.rows.tolist() == [0, 1, 2]
    assert launches.grid.tolist() == [12, 0, 0]
    assert launches.block.tolist() == [64, 0, 0]
    assert launches.size_bytes.tolist() == [-1, 4096, -1]
    assert launches.occupancy_frac[0] == 0.25
    # What makes no sense is absent.
    assert np.isnan(launches.blocks_per_sm[1:]).all()
    assert np.isnan(launches.occupancy_frac[1:]).all()
    assert found.operators[3].dims == ((4, 8), (8, 2), ())
    assert found.operators[4].dims == ((), ())


def test_rows_are_found_again_whatever_their_order_in_the_file(tmp_path: Path) -> None:
    document = json.loads(made().to_json())
    document["traceEvents"].reverse()
    document["traceEvents"].insert(0, {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}})
    found = read(json.dumps(document).encode(), tmp_path / "t.json")
    assert found.launches.grid.tolist() == [12, 0, 0]
    assert sorted(found.operators) == [3, 4]


def test_a_bare_list_is_read_too(tmp_path: Path) -> None:
    events = json.loads(made().to_json())["traceEvents"]
    assert read(json.dumps(events).encode(), tmp_path / "t.json").launches.grid.tolist() == [12, 0, 0]


def test_a_damaged_file_gives_the_arguments_of_what_was_read(tmp_path: Path) -> None:
    text = made().to_json()
    inputs = []
    for name, part in (("whole.json", text), ("t.json", text[: len(text) - 40])):
        (tmp_path / name).write_bytes(part)
        trace = read_trace(tmp_path / name)
        found = read_details(trace).operators
        inputs.append({trace.name_of(row): (one.dims, one.types) for row, one in found.items()})
    whole, damaged = inputs
    assert damaged
    assert damaged == {name: given for name, given in whole.items() if name in damaged}


def test_nothing_is_there_of_a_missing_file() -> None:
    assert read_details(made().build()).launches.rows.size == 0
