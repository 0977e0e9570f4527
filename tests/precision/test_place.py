"""The user's line and the parameter's name, where there are some."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from referee.precision.place import parameter_name, user_line  # noqa: E402

TARGET = """\
import torch


def train():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)
    x = torch.randn(8, 4)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(x).float().square().mean() * 1e4
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    step.model, step.optimizer = model, optimizer
    return step
"""


def test_the_line_is_the_callers() -> None:
    assert user_line().startswith("test_place.py:")


def test_no_finding_of_the_command_names_the_line_that_started_it(tmp_path: Path) -> None:
    """By ``python -m`` the launcher is the standard library's, by the console script a file beside the interpreter."""
    from referee.records.schema import load

    (tmp_path / "target.py").write_text(TARGET)
    words = ["precision", "target.py:train", "--budget", "50ms", "--no-progress", "--json", "found.json"]
    start = tmp_path / "launch"
    start.write_text("import sys\nfrom referee.cli.main import main\nsys.exit(main())\n")
    done = subprocess.run(
        [sys.executable, str(start), *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = {f.code: f.evidence["line"] for f in load(tmp_path / "found.json").findings if "line" in f.evidence}
    assert lines["steps-skipped"] == "target.py:16"
    assert all(str(line).startswith("target.py:") for line in lines.values())


def test_a_parameter_is_named_from_the_outermost_module() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Linear(2, 2)))
    assert parameter_name(model[1][1].bias) == "1.1.bias"
    assert parameter_name(model[0].weight) == "0.weight"
    assert parameter_name(nn.Parameter(torch.ones(1))) == ""
