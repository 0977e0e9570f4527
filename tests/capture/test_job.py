"""Ranks: who we are, how far the clocks are apart, and two real ranks that leave two traces of one job."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from referee.capture.job import Job, answer_pings, ask_offset, find_job, measure_offset
from referee.records.provenance_file import load_provenance
from referee.trace.reader import read_trace
from referee.trace.source import find_traces

torch = pytest.importorskip("torch")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "two_ranks.py"


@pytest.mark.parametrize(
    ("stated", "job"),
    [
        ({"RANK": "1", "WORLD_SIZE": "4"}, Job(rank=1, world_size=4)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "4", "WORLD_SIZE": "4"}, None),
        ({"RANK": "x", "WORLD_SIZE": "4"}, None),
        ({"RANK": "1"}, None),
        ({}, None),
    ],
)
def test_the_job_is_what_the_launcher_states(stated: dict[str, str], job: Job | None) -> None:
    assert find_job(stated) == job


@pytest.mark.parametrize("skew_ns", [0, 5_000_000_000, -3_000_000])
def test_the_offset_is_found_within_its_error(skew_ns: int) -> None:
    store = torch.distributed.HashStore()
    store.set_timeout(timedelta(seconds=30))
    zero = threading.Thread(target=answer_pings, args=(store, "m"), kwargs={"ranks": range(1, 3)})
    zero.start()
    for rank in (1, 2):
        found = ask_offset(store, "m", rank=rank, now_ns=lambda: time.time_ns() + skew_ns)
        assert abs(found.offset_ns - skew_ns) <= found.error_ns + 1
    zero.join()


def test_a_store_that_is_not_there_gives_no_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    assert measure_offset(Job(rank=0, world_size=2)) is None


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_two_ranks_leave_two_traces_of_one_job(tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*launcher, str(EXAMPLE), str(tmp_path)], check=True, capture_output=True, env=environment)
    traces = sorted(tmp_path.glob("*.pt.trace.json.gz"))
    assert [path.name for path in traces] == [f"two_ranks.rank{rank}.0.pt.trace.json.gz" for rank in (0, 1)]
    assert find_traces([str(tmp_path)]) == [str(path) for path in traces]
    assert find_traces([str(tmp_path)], rank=1) == [str(traces[1])]
    for rank, path in enumerate(traces):
        provenance = load_provenance(path)
        assert provenance is not None
        assert (provenance.value("method.rank"), provenance.value("method.world_size")) == (rank, 2)
        assert isinstance(provenance.value("machine_state.host"), str)
        # One host, one clock: the offset is zero within its error.
        offset, error = provenance.value("method.clock_offset_ns"), provenance.value("method.clock_offset_error_ns")
        assert isinstance(offset, int)
        assert isinstance(error, int)
        assert abs(offset) <= error
        assert [step.name for step in read_trace(str(path)).steps] == [f"ProfilerStep#{k}" for k in (3, 4, 5)]
        file = json.loads(gzip.decompress(path.read_bytes()))
        assert file["distributedInfo"]["rank"] == rank
        names = [str(event.get("name")) for event in file["traceEvents"]]
        assert any("gloo:all_reduce" in name for name in names)
    one_answer(tmp_path)


def one_answer(folder: Path) -> None:
    """``referee trace`` of the folder: one report on the job, as text, JSON and a page."""
    written, page = folder / "job.answer", folder / "job.html"
    command = [sys.executable, "-m", "referee", "trace", str(folder)]
    shown = subprocess.run([*command, "--report", str(page)], check=True, capture_output=True, text=True).stdout
    subprocess.run([*command, "--json", str(written)], check=True, capture_output=True)
    answer = json.loads(written.read_text())
    job = answer["job"]
    assert (job["world_size"], job["missing"], job["basis"]) == (2, [], "clocks")
    # An all-reduce a step. Those whose thread has not come back when the profiler stops are cut: on a loaded machine
    # the last two, one on each of gloo's threads.
    assert 1 <= job["collectives"] <= 3
    assert [share["rank"] for share in job["ranks"]] == [0, 1]
    assert sum(share["last"] for share in job["ranks"]) <= job["collectives"]
    for share in job["ranks"]:
        assert 0 <= share["waited_ns"] <= share["collective_ns"]
        assert abs(share["clock_offset_ns"]) <= share["clock_error_ns"]
    assert min(share["waited_ns"] for share in job["ranks"]) < max(share["collective_ns"] for share in job["ranks"])
    for text in (shown, page.read_text()):
        assert "Traces of 2 of 2 ranks of one job." in text
        assert "Came last" in text
        assert "arrivals on one clock" in " ".join(text.split())
