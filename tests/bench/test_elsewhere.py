"""Does a step compute where nobody waits for it? Recorded work that is dropped, and work on another device."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import referee
from referee.device.observe import observe
from referee.device.registry import open_device

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SHORT = "50ms"


@pytest.fixture
def x() -> Any:
    device = open_device("lazy")
    moved = torch.randn(16, 16).to("lazy")
    device.settle(moved)
    return moved


def codes(found: Any) -> list[str]:
    return [finding.code for finding in found.findings if finding.severity == "fatal"]


def test_recorded_work_that_nobody_asks_for_has_no_headline(x: Any) -> None:
    """No output tells the device, no multiplication the peak: what the step records does."""
    found = referee.bench(lambda: (x + 1) is None, budget=SHORT)
    assert str(found.provenance.value("accelerator.name")).startswith("lazy")
    assert found.median_ns is None
    assert "work-did-not-run" in codes(found)


def test_a_value_that_is_read_back_made_its_work_run(x: Any) -> None:
    assert codes(observe(lambda: (x + 1).sum().item(), open_device("lazy"))) == []
    assert codes(observe(lambda: (x + 1).cpu(), open_device("lazy"))) == []


def test_a_step_that_writes_to_what_it_holds_needs_no_output(x: Any) -> None:
    assert "work-did-not-run" not in codes(observe(lambda: x.add_(1) is None, open_device("lazy")))


def test_arguments_on_the_cpu_do_not_hide_where_the_output_lives() -> None:
    open_device("lazy")
    found = referee.bench(lambda given: given.to("lazy") * 2, torch.randn(4), budget=SHORT)
    assert str(found.provenance.value("accelerator.name")).startswith("lazy")


@pytest.mark.parametrize("returns", [True, False])
def test_the_clock_of_the_cpu_does_not_wait_for_recorded_work(x: Any, returns: bool) -> None:
    found = observe(lambda: x + 1 if returns else (x + 1) is None, open_device("cpu"))
    (finding,) = [f for f in found.findings if f.severity == "fatal"]
    assert finding.code == "computes-elsewhere"
    assert "--device lazy" in finding.hint


def test_a_backend_that_the_user_has_started_is_used() -> None:
    code = (
        "import torch, torch._lazy.ts_backend as backend; backend.init(); import referee; "
        "x = torch.randn(4, 4, device='lazy'); "
        "print(referee.bench(torch.mm, x, x, budget='50ms').provenance.accelerator)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "lazy" in done.stdout
