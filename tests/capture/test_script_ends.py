"""However a script ends, what was recorded is there, and it is said how it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from referee.capture import Plan
from referee.capture.attach import attach
from referee.errors import StepError, UserError
from referee.records import schema
from referee.records.capture import Capture
from referee.trace.source import find_traces

torch = pytest.importorskip("torch")

TRAIN = """
import contextlib, os, sys, threading, time
import torch

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step():
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()

"""
PLAN = Plan.of(wait=1, warmup=1, active=3)


def run(tmp_path: Path, text: str, **given: Any) -> Capture:
    script = tmp_path / "script.py"
    script.write_text(TRAIN + text)
    given = {"calibrate": False, "device": "cpu", "plan": PLAN, **given}
    return attach(script, out_dir=tmp_path / "out", name="s", **given)


def command(tmp_path: Path, text: str, *words: str) -> list[str]:
    script = tmp_path / "script.py"
    script.write_text(TRAIN + text)
    where = ["--no-calibrate", "--out", str(tmp_path / "out"), "--no-progress"]
    return [sys.executable, "-m", "referee", "profile", str(script), *where, *words]


def started(tmp_path: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(tmp_path, text, *words), capture_output=True, text=True, check=False, timeout=120)


def recorded(tmp_path: Path) -> Capture:
    (path,) = (tmp_path / "out").glob("*.capture.json")
    record = schema.load(path)
    assert isinstance(record, Capture)
    return record


def codes(record: Capture) -> list[str]:
    return [finding.code for finding in record.findings]


CATCHERS = {
    "base": "except BaseException: pass",
    "bare": "except: pass",
    "tuple": "except (ValueError, BaseException) as error: print(error)",
    "later": "except ValueError: pass\n    except BaseException: pass",
}


@pytest.mark.parametrize("caught", CATCHERS.values(), ids=CATCHERS)
def test_a_script_that_catches_everything_is_stopped(tmp_path: Path, caught: str) -> None:
    record = run(tmp_path, f"for _ in range(50):\n    try:\n        step()\n    {caught}\n")
    assert record.iterations_run == 5
    assert "script-stopped" in codes(record)


def test_what_a_script_raises_itself_still_reaches_its_own_handler(tmp_path: Path) -> None:
    text = "for k in range(3):\n    step()\ntry:\n    raise SystemExit(7)\nexcept:\n    print('mine')\n"
    record = run(tmp_path, text, plan=Plan.of(wait=0, warmup=0, active=9))
    assert record.iterations_run == 3
    assert "script-exited" not in codes(record)


SWALLOWED = "for _ in range(9):\n    with contextlib.suppress(BaseException):\n        step()\n"


def test_what_cannot_be_stopped_runs_on_and_it_is_said(tmp_path: Path) -> None:
    record = run(tmp_path, SWALLOWED)
    assert record.iterations_run == 9
    assert record.files[0].iterations == (2, 3, 4)
    (said,) = (finding.message for finding in record.findings if finding.code == "script-stopped")
    assert said == "script.py was to be stopped after iteration 4, but caught what should have stopped it and ran on."


THREAD = "loop = threading.Thread(target=lambda: [step() for _ in range(10**9)])\nloop.start()\nloop.join()\n"


@pytest.mark.parametrize("text", [SWALLOWED.replace("range(9)", "range(10**9)"), THREAD], ids=["swallowed", "thread"])
def test_the_command_ends_all_the_same(tmp_path: Path, text: str) -> None:
    ran = started(tmp_path, text)
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr
    assert "script.py was stopped after iteration 5" in ran.stderr
    assert "Recording" in ran.stdout
    assert recorded(tmp_path).files[0].iterations == (3, 4, 5)


def test_the_last_answer_is_whole_as_json_too(tmp_path: Path) -> None:
    ran = started(tmp_path, SWALLOWED.replace("range(9)", "range(10**9)"), "--json", "-")
    assert json.loads(ran.stdout)["capture"]["files"][0]["iterations"] == [3, 4, 5]


@pytest.mark.parametrize("end", ["sys.exit(3)", "os._exit(3)", "sys.exit('no good')"])
@pytest.mark.parametrize("after", [5, 20])
def test_a_status_of_the_scripts_own_is_told(tmp_path: Path, end: str, after: int) -> None:
    ran = started(tmp_path, f"for _ in range({after}):\n    step()\n{end}\n", "--run-to-end")
    assert ran.returncode == 2
    status = "1 (no good)" if "good" in end else "3"
    assert f"script.py exited with status {status} after {after} iterations." in ran.stderr
    assert "Traceback" not in ran.stderr
    assert "Recording" in ran.stdout
    record = recorded(tmp_path)
    assert record.files[0].iterations == ((3, 4, 5) if after == 20 else (3, 4))
    assert "script-exited" in codes(record)


def test_a_process_that_ends_before_anything_was_recorded_is_one_sentence(tmp_path: Path) -> None:
    ran = started(tmp_path, "step()\nos._exit(0)\n")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("referee: 1 iteration was run, but the plan records from iteration 3 on")


def test_without_a_command_os_exit_ends_the_script_alone(tmp_path: Path) -> None:
    real = os._exit
    record = run(tmp_path, "for _ in range(4):\n    step()\nos._exit(5)\n")
    assert os._exit is real
    assert record.files[0].iterations == (2, 3)
    (said,) = (finding for finding in record.findings if finding.code == "script-exited")
    assert said.evidence["status"] == 5


def test_a_fork_ends_as_it_likes(tmp_path: Path) -> None:
    text = "if os.fork() == 0:\n    os._exit(4)\nassert os.waitstatus_to_exitcode(os.wait()[1]) == 4\n"
    record = run(tmp_path, text + "for _ in range(9):\n    step()\n")
    assert record.files[0].iterations == (2, 3, 4)


LOADER = """
class Data(torch.utils.data.Dataset):
    scale = torch.nn.Identity()

    def __len__(self):
        return 80

    def __getitem__(self, index):
        return self.scale(torch.ones(4))

for batch in torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=1):
    model(batch)
"""


def test_workers_that_call_modules_record_nothing_of_their_own(tmp_path: Path) -> None:
    record = run(tmp_path, f"del optimizer\n{LOADER}", run_to_end=True)
    assert record.files[0].iterations == (2, 3, 4)
    assert len(find_traces([str(tmp_path / "out")])) == 1
    assert record.iterations_run <= 20


def test_a_killed_script_leaves_the_cycles_that_were_whole_and_says_so(tmp_path: Path) -> None:
    text = "for _ in range(8):\n    step()\nos.kill(os.getpid(), 9)\n"
    ran = started(tmp_path, text, "--repeat", "3", "--warmup", "1", "--active", "2")
    assert ran.returncode == -signal.SIGKILL
    record = recorded(tmp_path)
    assert [file.iterations for file in record.files] == [(2, 3), (6, 7)]
    assert codes(record) == ["capture-cut", "step-missing"]
    assert len(find_traces([str(tmp_path / "out")])) == 2


def test_an_interrupt_names_what_was_saved(tmp_path: Path) -> None:
    text = "for k in range(10**9):\n    step()\n    time.sleep(0.01)\n    if k == 5: print('now', flush=True)\n"
    words = command(tmp_path, text, "--active", "100000")
    # What starts the tests may ignore interrupts (a shell does so for what runs behind it), and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    (trace,) = find_traces([str(tmp_path / "out")])
    assert said.strip().startswith("referee: interrupted.")
    assert f"had been recorded and saved: {trace}." in said


def test_what_referee_says_inside_a_script_is_not_swallowed(tmp_path: Path) -> None:
    text = "with torch.profiler.profile():\n  for _ in range(9):\n    try:\n      step()\n    except Exception: pass\n"
    with pytest.raises(UserError, match="Another torch profiler"):
        run(tmp_path, text)


def test_a_script_that_raises_keeps_what_was_recorded(tmp_path: Path) -> None:
    with pytest.raises(StepError) as caught:
        run(tmp_path, "for k in range(9):\n    step()\n    1 / (3 - k)\n")
    assert "2 iterations (2 to 3) had been recorded and saved" in caught.value.hint
