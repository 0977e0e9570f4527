"""Reading with little memory gives the same answer as reading with much."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from referee.trace.blob import MemoryBlob
from referee.trace.builder import TraceBuilder
from referee.trace.columns import Rows
from referee.trace.decode import Vocabulary, decode
from referee.trace.gather import GrowingColumns
from referee.trace.reader import gather, read_trace
from referee.trace.totals import kernels_per_step, totals
from referee.trace.unpack import Text


def test_recorded_traces_are_the_same(recorded: str, traces_dir: Path):
    full, lean = read_trace(traces_dir / recorded), read_trace(traces_dir / recorded, lean=True)
    assert asdict(totals(full)) == asdict(totals(lean))
    assert kernels_per_step(full) == kernels_per_step(lean)
    assert full.findings == lean.findings
    for name in Rows.__dataclass_fields__:
        assert np.array_equal(getattr(full.rows, name), getattr(lean.rows, name)), name
    for name in full.links.__dataclass_fields__:
        assert np.array_equal(getattr(full.links, name), getattr(lean.links, name)), name


def test_ids_that_need_more_than_32_bits_keep_them():
    builder = TraceBuilder()
    for index in range(5):
        builder.launch("cudaLaunchKernel", index, 1, correlation=index + (1 << 40) * (index > 2))
        builder.kernel("k", 10 + index, 1, correlation=index + (1 << 40) * (index > 2))
    trace = gather(Text(blob=MemoryBlob(builder.to_json())), source="x", lean=True).finish(None)
    assert trace.rows.correlation.tolist() == builder.build().rows.correlation.tolist()
    assert trace.links.launch_of.tolist() == builder.build().links.launch_of.tolist()


def test_a_column_widens_when_it_must():
    narrow, wide = (
        gather(Text(blob=MemoryBlob(TraceBuilder().kernel("k", 0, 1, correlation=id_).to_json())), source="x").columns
        for id_ in (7, 1 << 50)
    )
    assert narrow.take("correlation").tolist() == [7]
    assert wide.take("correlation").tolist() == [1 << 50]
    assert GrowingColumns(lean=True).take("correlation").dtype == np.int32


def test_a_column_widens_in_the_middle(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(GrowingColumns, "_JOINED_ROWS", 2)
    ids = [7, 9, 1 << 50, 8, 5]
    columns = GrowingColumns(lean=True)
    for number, one in enumerate(ids):
        text = TraceBuilder().kernel("k", 0, 1, correlation=one).to_json()
        events = text[text.index(b"[", text.index(b"traceEvents")) : text.rindex(b"]") + 1]
        piece = decode(events, words=Vocabulary())
        assert piece is not None
        columns.append(piece, place=number)
    assert columns.take("correlation").tolist() == ids
    assert columns.take("place").tolist() == [0, 1, 2, 3, 4]
    assert columns.take("name").tolist() == [0] * 5
