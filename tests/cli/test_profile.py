"""``referee profile`` as a user meets it: live and saved give one answer, and what records nothing is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from referee.cli.main import main

pytest.importorskip("torch")

TARGETS = """
import torch

def train():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 8)
    def step():
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step
"""


@pytest.fixture
def target(tmp_path: Path) -> str:
    path = tmp_path / "targets.py"
    path.write_text(TARGETS)
    return f"{path}:train"


def answer(*words: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main([*words, "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("options", [[], ["--shapes", "--stacks", "--modules"]], ids=["bare", "options"])
def test_live_and_saved_give_one_answer(
    target: str, options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["profile", target, "--repeat", "2", "--out", str(tmp_path / "out"), "--no-progress", *options]
    found = answer(*words, capsys=capsys)
    assert len(found["reports"]) == 2
    for file, live in zip(found["capture"]["files"], found["reports"], strict=True):
        saved = answer("trace", file["path"], capsys=capsys)
        assert saved == live


def test_named_iterations_are_recorded(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["profile", target, "--steps", "7,3,8", "--warmup", "1", "--active", "1", "--no-calibrate"]
    found = answer(*words, "--out", str(tmp_path / "out"), "--no-progress", capsys=capsys)
    assert [file["iterations"] for file in found["capture"]["files"]] == [[3], [7, 8]]


@pytest.mark.parametrize("steps", ["a", "1,,2", "-1", "1.5"])
def test_iterations_that_are_none_are_refused(target: str, steps: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", target, f"--steps={steps}"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--iterations", "3"], "3 iterations are run, but the plan records from iteration 3 on"),
        (["--steps", "5", "--iterations", "5"], "records from iteration 5 on"),
        (["--active", "0"], "nothing would be recorded"),
        (["--repeat", "0"], "repeats without end"),
    ],
)
def test_a_plan_that_records_nothing_is_refused(
    words: list[str], said: str, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for given in ([], [target]):
        assert main(["profile", *given, "--plan", *words]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert said in shown.err


def test_the_plan_names_the_second_pass_for_memory(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", target, "--plan", "--memory"]) == 0
    assert "for memory without shapes" not in capsys.readouterr().out
    assert main(["profile", target, "--plan", "--memory", "--flops"]) == 0
    assert "then 4 iterations more, for memory without shapes" in capsys.readouterr().out
    script = Path(target.partition(":")[0])
    assert main(["profile", str(script), "--plan", "--memory", "--shapes"]) == 0
    assert "no memory timeline" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (None, [], "script.py cannot be read: No such file or directory."),
        ("x = = 1", [], "script.py, line 1 is not Python"),
        ("x = 1", ["--boundary", "function:fit"], "script.py defines no function fit."),
        ("x = 1", ["--boundary", "fit"], "'fit' names no step."),
    ],
    ids=["missing", "not python", "no function", "no boundary"],
)
def test_the_plan_of_a_script_that_cannot_run_is_refused(
    text: str | None, words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    if text is not None:
        script.write_text(text)
    assert main(["profile", str(script), "--plan", *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err


SHORT = """
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(2)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "No iteration was found in script.py: no optimizer stepped"),
        ("raise SystemExit(4)", "until the script exited with status 4"),
        (SHORT, "3 iterations were run, but the plan records from iteration 3 on"),
    ],
    ids=["none", "exits", "short"],
)
def test_a_script_of_which_nothing_was_recorded_is_no_answer(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(text)
    assert main(["profile", str(script), "--out", str(tmp_path / "out")]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert "call step()" not in shown.err


LOOP = SHORT.replace("range(3)", "range(30)")
FOREIGN = [
    (["--dtype", "bfloat16"], "--dtype belongs to a target"),
    (["--batch-size", "4"], "--batch-size belongs to a target"),
    (["--param", "a=1"], "--param belongs to a target"),
    (["--threads", "1"], "--threads belongs to a target"),
    (["--setup", "x = 1"], "--setup belongs to a target"),
    (["--iterations", "5", "--run-to-end"], "contradict each other"),
]


@pytest.mark.parametrize(("words", "said"), FOREIGN, ids=[said for _, said in FOREIGN])
@pytest.mark.parametrize("plan", [[], ["--plan"]], ids=["run", "plan"])
def test_an_option_that_says_nothing_to_a_script_is_refused(
    words: list[str], said: str, plan: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(LOOP)
    assert main(["profile", str(script), "--out", str(tmp_path / "out"), *words, *plan]) == 2
    shown = capsys.readouterr()
    assert (shown.out, len(shown.err.splitlines())) == ("", 1)
    assert said in shown.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", [["--boundary", "optimizer"], ["--run-to-end"]], ids=["boundary", "to the end"])
def test_an_option_that_says_nothing_to_a_target_is_refused(
    words: list[str], target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", target, *words]) == 2
    assert f"{words[0]} belongs to a script" in capsys.readouterr().err


def test_iterations_stop_a_script_and_need_no_end_of_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(LOOP)
    words = ["profile", str(script), "--wait=1", "--warmup=0", "--active=1", "--repeat=0", "--iterations=5"]
    words += ["--no-calibrate", "--out", str(tmp_path / "out")]
    assert main([*words, "--plan"]) == 0
    planned = capsys.readouterr().out
    assert "file 2: iteration 3 of 5" in planned
    assert "not known: a script is not run for a plan" in planned
    capture = answer(*words, capsys=capsys)["capture"]
    assert capture["iterations_run"] == 5
    assert [file["iterations"] for file in capture["files"]] == [[1], [3]]
    (stopped,) = (finding for finding in capture["findings"] if finding["code"] == "script-stopped")
    assert "was stopped after iteration 4 (the first is iteration 0): as it was told to be." in stopped["message"]


def test_a_script_whose_loop_runs_in_other_processes_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text('import subprocess, sys\nsubprocess.run([sys.executable, "-c", "pass"], check=True)\n')
    assert main(["profile", str(script), "--out", str(tmp_path / "out")]) == 2
    assert "It ran other processes" in capsys.readouterr().err


def test_a_script_s_own_option_before_the_dashes_is_told_where_it_belongs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "train.py", "--epochs", "1"]) == 2
    said = capsys.readouterr().err
    assert "unrecognized arguments: --epochs 1. What is meant for a script stands after --" in said
    assert "See `referee profile --help`." in said
