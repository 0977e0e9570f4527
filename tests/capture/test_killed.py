"""A capture that is killed, a hundred times: never a file that a reader takes for a complete trace.

One process imports torch and forks a child for each trial, which captures over and over under the same name until it is
killed: half of the trials at the k-th thing it asks the operating system for (open, rename, remove … as Python's audit
hooks report them), the other half whenever a random moment has come.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from referee.records.provenance_file import load_provenance

pytest.importorskip("torch")

TRIALS = 50

CHILD = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from referee.capture import Plan, capture
from referee.device.registry import open_device

torch.set_num_threads(1)
root, trials, how = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
device, tensor = open_device("cpu"), torch.ones(4)

def step():
    for _ in range(20):
        tensor + 1

def take(folder):
    capture(step, device=device, dtype="float32", shapes=(), out_dir=folder, name="k",
            plan=Plan.of(wait=0, warmup=1, active=2, repeat=2), timing_budget_ns=0, calibrate=False)

take(root / "warm")
for trial in range(trials):
    folder = root / f"{trial}"
    child = os.fork()
    if child == 0:
        take(folder)
        if how == "event":
            left = 1 + 3 * trial
            def count(event, args):
                global left
                if event.startswith(("os.", "open", "tempfile.", "glob.", "pathlib.")):
                    left -= 1
                    if left == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
            sys.addaudithook(count)
        while True:
            take(folder)
    if how == "moment":
        while not (folder / "k.capture.json").exists():
            time.sleep(0.001)
        time.sleep(random.Random(trial).random() * 0.05)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), status
"""


def is_complete(path: Path) -> bool:
    """Whether the file is a whole trace with both of its iterations, and its provenance with it."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    steps = {event["name"] for event in events if str(event.get("name", "")).startswith("ProfilerStep#")}
    first = 3 * int(path.name.split(".")[1]) + 1
    return steps == {f"ProfilerStep#{first}", f"ProfilerStep#{first + 1}"} and load_provenance(path) is not None


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks a process in which torch has run")
@pytest.mark.parametrize("how", ["event", "moment"])
def test_a_killed_capture_leaves_whole_traces_or_none(tmp_path: Path, how: str) -> None:
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD, str(tmp_path), str(TRIALS), how], check=True, capture_output=True
    )
    cut_off = 0
    for trial in range(TRIALS):
        folder = tmp_path / str(trial)
        taken_for_traces = [path for path in folder.iterdir() if path.name.endswith((".json.gz", ".trace.json"))]
        assert all(is_complete(path) for path in taken_for_traces)
        hidden = [path for path in folder.iterdir() if path.name.endswith(".partial")]
        assert all(path.name.startswith(".") for path in hidden)
        cut_off += bool(hidden) or len(taken_for_traces) < 2
    # The trials must have hit the middle of the work, or they would show nothing.
    assert cut_off >= TRIALS // 5
