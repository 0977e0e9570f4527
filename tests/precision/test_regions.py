"""Autocast made without a dtype outside of the step: by a decorator, as an object that is entered again and again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from referee.cli.main import main  # noqa: E402
from referee.precision.watch import watch  # noqa: E402

CONTEXT = torch.autocast("cpu")  # made here
WITH_DTYPE = torch.autocast("cpu", dtype=torch.bfloat16)
OFF = torch.autocast("cpu", enabled=False)


class Holder:
    def __init__(self) -> None:
        self.region = torch.autocast(device_type="cpu")  # made in holder


@torch.autocast("cpu")
def decorated(x: Any) -> Any:
    return x @ x


@torch.autocast("cpu", torch.bfloat16)
def decorated_with_dtype(x: Any) -> Any:
    return x @ x


@CONTEXT
def decorated_by_a_name(x: Any) -> Any:
    return x @ x


def in_context(x: Any) -> Any:
    with CONTEXT:
        return x @ x


def in_an_attribute(x: Any, holder: Holder = Holder()) -> Any:  # noqa: B008 - one object for all calls, on purpose
    with torch.no_grad(), holder.region:
        return x @ x


def with_dtype(x: Any) -> Any:
    with WITH_DTYPE:
        return x @ x


def switched_off(x: Any) -> Any:
    with OFF:
        return x @ x


def line_of(words: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    return f"test_regions.py:{next(k for k, line in enumerate(lines, 1) if line.endswith(words))}"


@pytest.mark.parametrize(
    ("call", "made"),
    [
        (decorated, '@torch.autocast("cpu")'),
        (decorated_by_a_name, "# made here"),
        (in_context, "# made here"),
        (in_an_attribute, "# made in holder"),
    ],
)
def test_contexts_made_before_the_watch_are_found_by_the_source(call: Callable[[Any], Any], made: str) -> None:
    for context in (CONTEXT, WITH_DTYPE, OFF):
        vars(context).pop("_referee_made_without_dtype", None)
    with watch() as seen:
        for _ in range(3):
            call(torch.ones(2, 2))
    (found,) = seen.findings
    assert found.code == "autocast-without-dtype"
    assert found.evidence["line"] == line_of(made)
    assert found.evidence["times"] == 3


@pytest.mark.parametrize("call", [decorated_with_dtype, with_dtype, switched_off])
def test_contexts_with_a_dtype_or_switched_off_are_left_in_peace(call: Callable[[Any], Any]) -> None:
    with watch() as seen:
        call(torch.ones(2, 2))
    assert seen.findings == ()


def test_a_context_made_under_the_watch_says_so_when_it_is_entered_and_not_before() -> None:
    with watch() as seen:
        context = torch.autocast("cpu")
        assert seen.findings == ()
        with context:
            pass
    (found,) = seen.findings
    assert str(found.evidence["line"]).startswith("test_regions.py:")


TARGET = """\
import torch

model, x = torch.nn.Linear(4, 1), torch.randn(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.autocast("cpu")
def loss_of(inputs):
    return model(inputs).float().square().mean()


def train():
    def step():
        optimizer.zero_grad()
        loss = loss_of(x)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step.model, step.optimizer = model, optimizer
    return step
"""


def test_the_command_sees_a_decorator_that_ran_when_the_target_was_loaded(tmp_path: Path) -> None:
    (tmp_path / "target.py").write_text(TARGET)
    saved = tmp_path / "found.json"
    words = ["precision", f"{tmp_path / 'target.py'}:train", "--budget", "50ms", "--no-progress", "--json", str(saved)]
    assert main(words) == 0
    report = json.loads(saved.read_text())
    (found,) = (f for f in report["findings"] if f["code"] == "autocast-without-dtype")
    assert found["evidence"]["line"] == "target.py:7"
