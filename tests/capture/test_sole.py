"""Two profilers at once: torch crashes, so the second is refused in one sentence, whichever comes second."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

BEGIN = """
import sys, warnings
import torch
from referee.capture import Capture, Plan
from referee.errors import UserError

warnings.simplefilter("ignore")

def taken(name, **plan):
    return Capture(out_dir=sys.argv[1], name=name, plan=Plan.of(**plan), calibrate=False)

def loop(capture, times=6):
    for _ in capture.over(range(times)):
        torch.ones(2)

def schedule(**plan):
    return torch.profiler.profile(schedule=torch.profiler.schedule(**plan))

def run():
"""
END = """
try:
    run()
except UserError as error:
    print(error.message)
assert not torch.autograd._profiler_enabled()
for name in ("after", "again"):
    with taken(name, wait=0, warmup=1, active=2) as capture:
        loop(capture)
    print(capture.result.files[0].iterations)
"""
CASES = {
    "warming up": "with schedule(wait=0, warmup=5, active=1), taken('i', wait=0, warmup=0, active=2) as c:\n   loop(c)",
    "recording": "with torch.profiler.profile(), taken('i', wait=0, warmup=0, active=2) as c:\n   loop(c)",
    "old": "with torch.autograd.profiler.profile(), taken('i', wait=0, warmup=0, active=2) as c:\n   loop(c)",
    "nested": "with taken('o', wait=0, warmup=5, active=1), taken('i', wait=0, warmup=2, active=2) as c:\n   loop(c)",
    "inside": "with taken('o', wait=0, warmup=0, active=5) as c:\n   with torch.profiler.profile():\n    loop(c)",
    "inside, old": "with taken('o', wait=0, warmup=3, active=5):\n   with torch.autograd.profiler.profile():\n    pass",
    "its turn comes later": (
        "with schedule(wait=2, warmup=1, active=1) as p, taken('i', wait=0, warmup=0, active=9) as c:\n"
        "   for _ in range(6):\n    torch.ones(2); p.step(); c.step()"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_second_is_one_sentence_and_the_next_capture_is_whole(case: str, tmp_path: Path) -> None:
    # In a process of its own, because a crash would take the tests with it.
    text = f"{BEGIN}  {case}\n{END}"
    ran = subprocess.run([sys.executable, "-c", text, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "Another torch profiler is running already, and only one can run at a time.", "(1, 2)", "(1, 2)",
    ]  # fmt: skip


@pytest.mark.slow
def test_profilers_that_take_turns_are_left_alone(tmp_path: Path) -> None:
    case = (
        "with schedule(wait=0, warmup=1, active=1) as p:\n   torch.ones(2); p.step()\n"
        "  with taken('a', wait=0, warmup=1, active=1) as c:\n   loop(c)\n  with torch.profiler.profile():\n   pass"
    )
    text = f"{BEGIN}  {case}\n{END}"
    ran = subprocess.run([sys.executable, "-c", text, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.splitlines()) == (0, ["(1, 2)", "(1, 2)"]), ran.stderr
