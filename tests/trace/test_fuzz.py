"""A short run of the fuzz target (``fuzz_reader.py`` beside this file runs as long as one likes)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from referee.errors import TraceError
from referee.trace.reader import read_trace


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_reader", Path(__file__).with_name("fuzz_reader.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_reader"] = module
    spec.loader.exec_module(module)
    return module


def test_mutated_files_are_answered(fuzz: ModuleType):
    counts, failures, _ = fuzz.try_seeds(list(range(400)), limit_memory=False, bombs=False)
    assert failures == []
    assert counts["answered"] == 400
    # The mutations reach what they are meant to reach.
    reached = {"truncated", "repaired", "skipped-events", "unusable-times", "unpaired-events", "unknown-category"}
    assert reached <= set(counts)


FAILED_ONCE = [2823, 3_028_146]
"""Seeds that were not answered once: a replay without waits ran beyond the largest time; forty thousand blanks behind
the list took time in their square."""


def test_what_failed_once(fuzz: ModuleType):
    _, failures, _ = fuzz.try_seeds(FAILED_ONCE, limit_memory=False, bombs=False)
    assert failures == []


def test_every_layout_is_read_undamaged(fuzz: ModuleType, tmp_path: Path):
    for name, data in fuzz.layouts().items():
        path = tmp_path / "file"
        path.write_bytes(data)
        codes = set(fuzz.answer(str(path)))
        assert not {"truncated", "skipped-events", "unusable-times", "unpaired-events"} & codes, name
        assert len(data) >= fuzz.LEAST_BYTES, name


def test_a_file_that_unpacks_to_ten_gigabytes_is_refused(fuzz: ModuleType, tmp_path: Path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(fuzz.make_bomb())
    with pytest.raises(TraceError, match="unpacks to over 400 times its size: that is no trace"):
        read_trace(path)


def test_every_code_of_the_reader_is_on_its_page(fuzz: ModuleType):
    page = (Path(__file__).parents[2] / "docs" / "traces.md").read_text()
    assert {code for code in fuzz.reader_codes() if f"`{code}`" not in page} == set()
