"""Ten small training steps with one fault each, and their correct relatives, as their users would run them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from referee.cli.main import main  # noqa: E402
from referee.precision.watch import watch  # noqa: E402

TARGET = """\
import torch
from torch import nn

HALF, BRAIN = torch.float16, torch.bfloat16


class Wrapped:
    def __init__(self, inner):
        self.inner, self.param_groups, self.state = inner, inner.param_groups, inner.state


def train():
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    {setup}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    scaler = torch.amp.GradScaler("cpu", init_scale={scale})
    x = torch.randn(8, 4)

    def loss_in(dtype):
        with torch.autocast("cpu", dtype=dtype):
            return model(x).float().square().mean()

    def step():
        optimizer.zero_grad()
{body}
        return loss.detach()

    step.model, step.optimizer = model, optimizer
    return step
"""

SCALED = "loss = loss_in(HALF)\nscaler.scale(loss).backward()\n"
STEPPED = "scaler.step(optimizer)\nscaler.update()\n"
CLIPPED = "nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
RIGHT = SCALED + "scaler.unscale_(optimizer)\n" + CLIPPED + STEPPED
PLAIN = "loss = loss_in(BRAIN)\nloss.backward()\noptimizer.step()\n"
"""What the steps below have in common: right use in fp16, its parts, and bf16 without a scaler."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A step with one fault, whose line ends with ``# here``, and the correct relative."""

    code: str
    wrong: str
    right: str = RIGHT
    mend: str
    scale: str = "1024.0"
    setup: str = ""
    raises: bool = False
    """The step raises, so that nothing but the fault can be reported."""
    also: tuple[str, ...] = ()
    """What follows from the same fault."""


CASES = {
    "no unscale before clipping": Case(
        code="clip-before-unscale",
        mend="unscale_",
        wrong=SCALED + "nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # here\n" + STEPPED,
    ),
    "unscaled twice": Case(
        code="unscaled-twice",
        mend="once per step",
        wrong=SCALED + "scaler.unscale_(Wrapped(optimizer))\nscaler.step(optimizer)  # here\nscaler.update()\n",
    ),
    "fp16 gradients unscaled": Case(
        code="half-weights",
        mend="float32",
        setup="model.half()",
        raises=True,
        wrong="loss = model(x.half()).float().square().mean()\n"
        "scaler.scale(loss).backward()\n"
        "scaler.unscale_(optimizer)  # here\n" + STEPPED,
    ),
    "no update": Case(
        code="scaler-not-updated",
        mend="scaler.update()",
        raises=True,
        wrong=SCALED + "scaler.step(optimizer)  # here\n",
    ),
    "no update, with unscaling": Case(
        code="scaler-not-updated",
        mend="scaler.update()",
        raises=True,
        wrong=SCALED + "scaler.unscale_(optimizer)  # here\n"
        "nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "scaler.step(optimizer)\n",
    ),
    "clipping by a total norm": Case(
        code="clip-before-unscale",
        mend="unscale_",
        wrong=SCALED + "norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])\n"
        "nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, norm)  # here\n" + STEPPED,
    ),
    "clipping by hand": Case(
        code="clip-before-unscale",
        mend="unscale_",
        wrong=SCALED + "for p in model.parameters():\n    p.grad.data.clamp_(-1, 1)  # here\n" + STEPPED,
    ),
    "a reused context without a dtype": Case(
        code="autocast-without-dtype",
        mend="Say which",
        setup='context = torch.autocast("cpu")  # here',
        wrong="""\
            with context:
                loss = model(x).float().square().mean()
            loss.backward()
            optimizer.step()
            """,
        right=PLAIN,
    ),
    "a step on a loss that was not scaled": Case(
        code="loss-not-scaled",
        mend="scaler.scale(loss)",
        wrong="""\
            loss = loss_in(HALF)
            scaler.scale(loss)
            loss.backward()
            scaler.step(optimizer)  # here
            scaler.update()
            """,
    ),
    "a scaler with bf16": Case(
        code="scaler-for-nothing",
        mend="Remove",
        wrong="loss = loss_in(BRAIN)\nscaler.scale(loss).backward()  # here\n" + STEPPED,
        right=PLAIN,
    ),
    "a scaler without autocast": Case(
        code="scaler-for-nothing",
        mend="Remove",
        wrong="loss = model(x).square().mean()\nscaler.scale(loss).backward()  # here\n" + STEPPED,
        right="""\
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            """,
    ),
    "the whole loop in autocast": Case(
        code="loop-in-autocast",
        mend="forward and loss only",
        also=("backward-in-autocast",),
        wrong="""\
            with torch.autocast("cpu", dtype=BRAIN):
                loss = model(x).float().square().mean()
                loss.backward()
                optimizer.step()  # here
            """,
        right=PLAIN,
    ),
    "backward in autocast": Case(
        code="backward-in-autocast",
        mend="End the autocast region",
        wrong="""\
            with torch.autocast("cpu", dtype=BRAIN):
                loss = model(x).float().square().mean()
                loss.backward()  # here
            optimizer.step()
            """,
        right=PLAIN,
    ),
    "a scheduler on a skipped step": Case(
        code="scheduler-on-skipped-step",
        mend="did not fall",
        scale="2.0**120",
        also=("steps-skipped",),
        wrong="""\
            loss = loss_in(HALF)
            scaler.scale(loss * 1e4).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()  # here
            """,
        right=SCALED + "scaler.step(optimizer)\n"
        "before = scaler.get_scale()\n"
        "scaler.update()\n"
        "if scaler.get_scale() >= before:\n"
        "    scheduler.step()\n",
    ),
    "autocast without a dtype": Case(
        code="autocast-without-dtype",
        mend="Say which",
        wrong="""\
            with torch.autocast("cpu"):  # here
                loss = model(x).float().square().mean()
            loss.backward()
            optimizer.step()
            """,
        right=PLAIN,
    ),
}


def source(case: Case, *, wrong: bool) -> str:
    body = indent(dedent(case.wrong if wrong else case.right).strip(), " " * 8)
    return TARGET.format(setup=case.setup if wrong else "", body=body, scale=case.scale if wrong else "1024.0")


def line_of_fault(text: str) -> str:
    (line,) = (number for number, words in enumerate(text.splitlines(), 1) if words.endswith("# here"))
    return f"target.py:{line}"


def watched(text: str, path: Path, *, steps: int = 2) -> tuple[Any, ...]:
    names: dict[str, Any] = {}
    path.write_text(text)
    exec(compile(text, str(path), "exec"), names)
    step = names["train"]()
    with watch() as seen:
        try:
            for _ in range(steps):
                step()
        except (ValueError, RuntimeError, AssertionError):
            pass  # torch refuses what was named before
    return seen.findings


@pytest.mark.parametrize("name", CASES)
def test_round_ones_own_loop_the_fault_is_named_with_line_and_mend(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    text = source(case, wrong=True)
    found = {finding.code: finding for finding in watched(text, tmp_path / "target.py")}
    assert set(found) == {case.code, *case.also}
    fault = found[case.code]
    assert fault.evidence["line"] == line_of_fault(text)
    assert line_of_fault(text) in fault.message
    assert case.mend in fault.hint


@pytest.mark.parametrize("name", CASES)
def test_the_correct_relative_is_left_in_peace(name: str, tmp_path: Path) -> None:
    assert watched(source(CASES[name], wrong=False), tmp_path / "target.py", steps=4) == ()


@pytest.mark.parametrize("name", CASES)
def test_the_command_names_the_fault(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = CASES[name]
    text = source(case, wrong=True)
    (tmp_path / "target.py").write_text(text)
    words = ["precision", f"{tmp_path / 'target.py'}:train", "--budget", "50ms", "--no-progress", "--dtype", "bf16"]
    saved = tmp_path / "found.json"
    status = main([*words, "--json", str(saved)])
    if case.raises:
        shown = "".join(capsys.readouterr().err.split())
        assert status == 2
        assert line_of_fault(text) in shown
        assert "".join(case.mend.split()) in shown
    else:
        assert status == 0
    capsys.readouterr()
    report = json.loads(saved.read_text())
    assert bool(report["verdict"]["undecided_because"]) or not case.raises
    assert {str(f["evidence"].get("line", ""))[:10] for f in report["findings"]} <= {"", "target.py:"}
    (fault,) = (f for f in report["findings"] if f["code"] == case.code)
    assert fault["evidence"]["line"] == line_of_fault(text)
    assert case.mend in fault["hint"]


def test_the_command_leaves_a_correct_step_in_peace(tmp_path: Path) -> None:
    (tmp_path / "target.py").write_text(source(CASES["no update"], wrong=False))
    saved = tmp_path / "found.json"
    words = ["precision", f"{tmp_path / 'target.py'}:train", "--budget", "50ms", "--no-progress", "--dtype", "bf16"]
    assert main([*words, "--json", str(saved)]) == 0
    codes = {finding["code"] for finding in json.loads(saved.read_text())["findings"]}
    assert "inputs-mutated" not in codes  # the scaler's own tensors are no inputs
    assert not codes & {code for case in CASES.values() for code in (case.code, *case.also)}
