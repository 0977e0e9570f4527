"""``referee anatomy`` end to end: answers, statuses, and what a mistake is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from referee.cli.anatomy import parse_shape
from referee.cli.main import main

TARGET = """
import torch

def train():
    model = torch.nn.Linear(4, 4)
    x = torch.rand(2, 4)
    step = lambda: model(x).relu().sum()
    step.model = model
    return step
"""


@pytest.mark.usefixtures("probe")
def test_an_operator(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["anatomy", "aten.add.Tensor", "--budget", "20ms", "--json", "-", "--no-progress"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "referee.anatomy/1"
    assert found["op"] == "aten.add.Tensor"
    assert {"name", "ns", "cold_ns", "ci_low_ns", "ci_high_ns"} <= set(found["stages"][0])
    assert {"whole_ns", "remainder_ns", "dispatch_path", "tape", "provenance", "findings"} <= set(found)


def test_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "steps.py"
    path.write_text(TARGET)
    assert main(["anatomy", f"{path}:train", "--budget", "100ms", "--json", "-", "--no-progress"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [mode["mode"] for mode in found["modes"]] == ["grad", "no_grad", "inference_mode"]
    assert found["tape"]["accumulators"] == 2


@pytest.mark.parametrize(
    "words",
    [
        ["anatomy"],
        ["anatomy", "aten.ad"],
        ["anatomy", "torch.nn.Linear"],
        ["anatomy", "aten.mm", "--shape", "2by2"],
        ["anatomy", "aten.mm", "--shape", "2xx2"],
        ["anatomy", "aten.mm", "--shape", "2x"],
        ["anatomy", "aten.mm", "--shape", "2x3", "--shape", "5x2"],
        ["anatomy", "aten.mm", "--batch-size", "4"],
        ["anatomy", "steps.py:train", "--shape", "4"],
        ["anatomy", "aten.mm", "--all", "aten"],
        ["anatomy", "aten.mm", "--grad", "--inference"],
        ["anatomy", "steps.py:train", "--no-grad"],
        ["anatomy", "--all", "aten", "--inference"],
        ["anatomy", "--all", "aten", "--tape-svg", "tape.svg"],
        ["anatomy", "--all", "atem"],
        ["anatomy", "aten.mm", "--tape-svg", "tape.png"],
        ["anatomy", "aten.mm", "--tape-svg", "/no/such/folder/tape.svg"],
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Traceback" not in shown.err
    assert shown.err.splitlines()[-1].startswith("referee: ")


def test_a_step_that_fails_for_a_model_built_in_inference_mode_names_its_tensors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "steps.py"
    path.write_text(
        "import torch\n\ndef serve():\n    with torch.inference_mode():\n        model = torch.nn.Conv1d(3, 4, 3)\n"
        "    x = torch.rand(2, 3, 16)\n    return lambda: model(x).sum()\n"
    )
    assert main(["anatomy", f"{path}:serve", "--no-progress"]) == 2
    said = capsys.readouterr().err
    assert "model.weight, model.bias were made in inference mode" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("text", "shape"), [("8", (8,)), ("64x512", (64, 512)), ("(3,)", (3,)), ("(3, 4)", (3, 4)), ("scalar", ())]
)
def test_shapes_that_people_write(text: str, shape: tuple[int, ...]) -> None:
    assert parse_shape(text) == shape
