"""What a capture wrote is what the trace reader reads: the same iterations, counts, provenance; a folder is one job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from referee.analysis.diagnose import diagnose
from referee.capture import Plan, capture
from referee.device.registry import open_device
from referee.records.capture import Capture, CaptureOptions
from referee.trace.reader import read_trace
from referee.trace.source import find_traces

torch = pytest.importorskip("torch")


@pytest.fixture
def taken(tmp_path: Path) -> Capture:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    inputs = torch.randn(4, 8)

    def step() -> Any:
        model.zero_grad()
        loss = model(inputs).sum()
        loss.backward()
        return loss.detach()

    return capture(
        step, device=open_device("cpu"), dtype="float32", shapes=(), out_dir=tmp_path, name="t",
        plan=Plan.of(wait=1, warmup=1, active=3, repeat=2),
        options=CaptureOptions(stacks=True, memory=True, flops=True),
        timing_budget_ns=0, calibrate=False,
    )  # fmt: skip


def test_the_reader_counts_what_the_capture_counted(taken: Capture) -> None:
    assert len(taken.files) == 2
    for file in taken.files:
        trace = read_trace(file.path)
        assert file.integrity is not None
        assert trace.events == file.integrity.events
        assert trace.steps_from == "profiler-steps"
        assert tuple(step.name for step in trace.steps) == tuple(f"ProfilerStep#{k}" for k in file.iterations)
        assert trace.provenance == taken.provenance
        assert diagnose(trace).totals.ops == file.integrity.ops
        assert not {finding.code for finding in trace.findings} & {"truncated", "repaired", "unknown-category"}


def test_only_the_traces_of_a_folder_are_read_as_traces(taken: Capture) -> None:
    folder = Path(taken.files[0].path).parent
    assert find_traces([str(folder)]) == [file.path for file in taken.files]
    assert len(list(folder.iterdir())) > 2 * len(taken.files)


def test_a_live_capture_and_its_saved_trace_give_the_same_report(taken: Capture, tmp_path: Path) -> None:
    """Live, the report is made from the file just written; moved with what lies beside it, it says the same."""
    first = Path(taken.files[0].path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in first.parent.glob(f"{first.name}*"):
        (elsewhere / path.name).write_bytes(path.read_bytes())
    live, saved = diagnose(read_trace(str(first))), diagnose(read_trace(str(elsewhere / first.name)))
    assert replace(saved, source=live.source) == live


def test_an_unfinished_iteration_is_no_step_to_the_reader(tmp_path: Path) -> None:
    calls = iter(range(100))

    def step() -> Any:
        torch.ones(2)
        if next(calls) == 4:
            raise KeyboardInterrupt
        return torch.ones(2)

    with pytest.raises(KeyboardInterrupt):
        capture(
            step, device=open_device("cpu"), dtype="float32", shapes=(), out_dir=tmp_path, name="t",
            plan=Plan.of(wait=1, warmup=1, active=9), timing_budget_ns=0, calibrate=False,
        )  # fmt: skip
    (path,) = find_traces([str(tmp_path)])
    assert [found.name for found in read_trace(path).steps] == ["ProfilerStep#2", "ProfilerStep#3"]
