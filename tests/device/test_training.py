"""Whether layers are in train or in eval mode is stated, and two sides that differ in it are not compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from referee.cli.main import main  # noqa: E402
from referee.device.observe import observe  # noqa: E402
from referee.device.registry import open_device  # noqa: E402
from referee.device.training import training_mode  # noqa: E402


class Own(torch.nn.Module):
    """Asks for its mode in code of its own."""

    def forward(self, x: Any) -> Any:
        """Twice the input, in training."""
        return x * 2 if self.training else x


def mixed() -> Any:
    model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.BatchNorm1d(4))
    model[1].eval()
    return model


@pytest.mark.parametrize(
    ("model", "mode"),
    [
        (torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout()), "train"),
        (torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout()).eval(), "eval"),
        (torch.nn.Dropout(0.0), "none seen"),
        (torch.nn.BatchNorm2d(4), "train"),
        (torch.nn.InstanceNorm2d(4), "none seen"),
        (torch.nn.GRU(4, 4), "none seen"),
        (torch.nn.GRU(4, 4, num_layers=2, dropout=0.5), "train"),
        (torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)), "none seen"),
        (Own().eval(), "eval"),
        (mixed(), "train and eval"),
        (torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout())), "train"),
        (torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())), "none seen"),
        (torch.jit.trace(torch.nn.Linear(4, 4), torch.ones(2, 4)), "none seen"),
    ],
)
def test_only_layers_that_ask_for_their_mode_say_it(model: Any, mode: str) -> None:
    assert training_mode([model]) == mode


def test_a_step_says_in_which_mode_its_layers_are() -> None:
    model, x = torch.nn.Dropout(), torch.rand(4)
    assert observe(lambda: model(x), open_device("cpu")).switches["training_mode"] == "train"
    model.eval()
    assert observe(lambda: model(x), open_device("cpu")).switches["training_mode"] == "eval"
    assert observe(lambda: x * 2, open_device("cpu")).switches["training_mode"] == "none seen"


TARGETS = """
import torch
def make(train, dropout=0.5):
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(dropout)).train(train), torch.rand(2, 4)
    return lambda: model(x)
def trained(): return make(True)
def used(): return make(False)
def without(): return make(True, 0.0)
"""


@pytest.mark.parametrize(
    ("b", "options", "refused"),
    [("used", (), True), ("used", ("--ignore", "switches.training_mode"), False), ("without", (), False)],
)
def test_dropout_on_one_side_alone_is_no_comparison(
    b: str, options: tuple[str, ...], refused: bool, tmp_path: Path, capsys: Any
) -> None:
    path = tmp_path / "t.py"
    path.write_text(TARGETS)
    main(["compare", f"{path}:trained", f"{path}:{b}", *options, "--budget", "20ms", "--no-progress"])
    shown = capsys.readouterr().out
    assert ("Not comparable" in shown or "not-comparable" in shown) is refused
    assert ("training_mode" in shown or "training mode" in shown) is True
