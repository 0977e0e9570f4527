"""What a target's file sets when it is imported holds for whatever is built from it, in every command alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from referee.cli.main import main
from referee.device.state import kept_state

pytest.importorskip("torch")

SETS = """
import torch

torch.set_num_threads(3)
torch.set_float32_matmul_precision("medium")

def one(batch_size=2):
    if batch_size > 64:
        raise MemoryError("no room")
    x = torch.randn(batch_size)
    return lambda: x + 1

def other(batch_size=2):
    x = torch.randn(batch_size)
    return lambda: x + 1
"""


@pytest.fixture(autouse=True)
def _switches_stay() -> Iterator[None]:
    with kept_state():
        yield


@pytest.fixture(params=["file", "module"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the file is named: by its path, or as a module, which is imported only once."""
    name = f"sets_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SETS)
    if request.param == "file":
        return str(tmp_path / f"{name}.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def run_json(*words: str, capsys: pytest.CaptureFixture[str]) -> Any:
    main([*words, "--budget", "30ms", "--json", "-", "--no-progress"])
    return json.loads(capsys.readouterr().out)


def switches(provenance: Any) -> tuple[int, str]:
    return provenance["chip"]["threads"], provenance["switches"]["float32_matmul_precision"]


def test_each_point_of_a_sweep_has_them_as_a_single_measurement_has(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    single = run_json("bench", f"{place}:one", capsys=capsys)
    assert switches(single["provenance"]) == (3, "medium")
    found = run_json("sweep", f"{place}:one", "--values", "128,2,4", capsys=capsys)
    assert [point["value"] for point in found["points"]] == [2, 4]
    assert {switches(point["measurement"]["provenance"]) for point in found["points"]} == {(3, "medium")}
    swept = run_json("sweep", f"{place}:one", "--parameter", "threads", "--values", "1,2", capsys=capsys)
    points = [switches(point["measurement"]["provenance"]) for point in swept["points"]]
    assert points == [(1, "medium"), (2, "medium")]


def test_each_side_of_a_comparison_has_them(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ((f"{place}:one", f"{place}:other"), (f"{place}:one", "--vary", "batch_size=2,4")):
        found = run_json("compare", *words, capsys=capsys)
        assert [switches(side["provenance"]) for side in found["sides"]] == [(3, "medium")] * 2
        assert found["pairs"][0]["differences"] == []


@pytest.mark.parametrize("command", ["bench", "sweep", "compare"])
def test_threads_that_the_file_sets_against_the_option_are_told(
    command: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"bench": (), "sweep": ("--values", "2,4"), "compare": (f"{place}:other",)}[command]
    assert main([command, f"{place}:one", *more, "--threads", "2", "--budget", "30ms", "--no-progress"]) == 2
    assert f"--threads 2 was asked for, and {place}:one sets 3 itself" in capsys.readouterr().err
    assert main([command, f"{place}:one", *more, "--threads", "3", "--budget", "30ms", "--no-progress"]) != 2
