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
from collections import Counter
from pathlib import Path

import pytest

from referee.records.provenance_file import load_provenance

pytest.importorskip("torch")

TRIALS = 50

CHILD = """
import mmap, os, random, signal, sys, time
from pathlib import Path
import torch
from referee.capture import Plan, capture, session
from referee.device.registry import open_device

# Where the child is, in memory that outlives it: recording before a file, writing one, or after one.
at = mmap.mmap(-1, 1)
write = session.write_cycle

def watched(*args, **given):
    at[0] = 1
    file = write(*args, **given)
    at[0] = 2
    return file

session.write_cycle = watched
torch.set_num_threads(1)
root, trials, how = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
device, tensor = open_device("cpu"), torch.ones(4)

def step():
    for _ in range(20):
        tensor + 1

def take(folder):
    at[0] = 0
    capture(step, device=device, dtype="float32", shapes=(), out_dir=folder, name="k",
            plan=Plan.of(wait=0, warmup=1, active=2, repeat=2), timing_budget_ns=0, calibrate=False)

take(root / "warm")
for trial in range(trials):
    folder = root / f"{trial}"
    began = time.perf_counter()
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
        while not (folder / "k.1.pt.trace.json.gz").exists():
            time.sleep(0.001)
        took = time.perf_counter() - began  # at the pace that the machine leaves this child
        time.sleep(random.Random(trial).random() * took)  # the rest of this capture, and some of the next
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), status
    print(("before", "during", "after")[at[0]])
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
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD, str(tmp_path), str(TRIALS), how],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    outcomes: Counter[tuple[str, int, bool]] = Counter()
    for trial, killed in enumerate(ran.stdout.split()):
        folder = tmp_path / str(trial)
        taken_for_traces = [path for path in folder.iterdir() if path.name.endswith((".json.gz", ".trace.json"))]
        assert all(is_complete(path) for path in taken_for_traces)
        hidden = [path for path in folder.iterdir() if path.name.endswith(".partial")]
        assert all(path.name.startswith(".") for path in hidden)
        outcomes[killed, len(taken_for_traces), bool(hidden)] += 1
    print(table(how, outcomes))
    assert outcomes.total() == TRIALS
    # The trials must have hit the middle of the work, or they would show nothing.
    assert sum(count for (_, whole, hidden), count in outcomes.items() if hidden or whole < 2) >= TRIALS // 5


def table(how: str, outcomes: Counter[tuple[str, int, bool]]) -> str:
    """How many trials ended how: where the process was in writing its files, and what it left."""
    lines = [f"killed at a random {how}", "writing a file  whole traces left  hidden partial file  trials"]
    for (killed, whole, hidden), count in sorted(outcomes.items()):
        lines.append(f"{killed:14}{whole:19}{'yes' if hidden else 'no':>21}{count:8}")
    return "\n".join(lines)
