"""A contiguous() that undoes channels_last is named with its line and its bytes, and left out; other ones are not."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from referee.device.registry import open_device  # noqa: E402
from referee.records.remedy import FixTried  # noqa: E402
from referee.remedy.attempt import attempt  # noqa: E402
from referee.remedy.fixes import fix_named  # noqa: E402
from referee.remedy.layout import find_undone  # noqa: E402
from referee.target import Target, load_target  # noqa: E402

pytestmark = pytest.mark.torch
DEVICE = open_device("cpu")

PIPELINE = """
def make():
    convolve = nn.Conv2d(16, 16, 3, padding=1).to(memory_format=torch.channels_last)
    x = torch.randn(8, 16, 64, 64).contiguous(memory_format=torch.channels_last)
    @torch.no_grad()
    def step():
        y = convolve(x)
        y = {call}
        return (y * 2).sum(dim=(2, 3))
    step.model = convolve
    return step
"""


def target_in(tmp_path: Path, call: str) -> Callable[[], Target]:
    path = tmp_path / "t.py"
    path.write_text("import torch\nfrom torch import nn\n" + textwrap.dedent(PIPELINE.format(call=call)))
    return lambda: load_target(f"{path}:make")


def try_it(load_it: Callable[[], Target]) -> FixTried:
    fix = fix_named("keep-layout")
    assert fix is not None
    return attempt(fix, load_it, device=DEVICE, budget_ns=50_000_000).fixes[0]


def test_the_line_and_the_bytes_are_named_and_the_step_is_tried_without(tmp_path: Path) -> None:
    tried = try_it(target_in(tmp_path, "y.contiguous()"))
    (undone,) = [note for note in tried.notes if "undoes channels_last" in note]
    assert "t.py:10 copies 2.00 MiB" in undone
    assert tried.outputs_match is True
    assert tried.applied
    assert "contiguous" not in torch.Tensor.__dict__


@pytest.mark.parametrize(
    "call", ["y", "y.contiguous(memory_format=torch.channels_last)", "y.flatten(1).contiguous()[:, :, None, None]"]
)
def test_calls_that_undo_nothing_are_left_alone(tmp_path: Path, call: str) -> None:
    tried = try_it(target_in(tmp_path, call))
    assert not tried.applied
    assert "layout" in tried.why_not or "channels_last" in tried.why_not


def test_what_is_contiguous_already_costs_nothing_and_is_not_named() -> None:
    plain = torch.randn(2, 3, 4, 4)
    images = plain.contiguous(memory_format=torch.channels_last)
    assert find_undone(plain.contiguous) == []
    (line,) = find_undone(lambda: [images.contiguous() for _ in range(3)])
    assert (line.calls, line.copied_bytes) == (3, 3 * images.numel() * 4)
