"""What a capture wrote is what the trace reader reads: the same iterations, counts, provenance; a folder is one job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from referee.analysis.diagnose import diagnose
from referee.capture import Plan, capture
from referee.capture.export import compress
from referee.cli.main import main
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
    for path in (*first.parent.glob(f"{first.name}*"), first.parent / "t.capture.json"):
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


def cut_short(folder: Path, *, repeat: int) -> Capture:
    return capture(
        lambda: torch.ones(2), device=open_device("cpu"), dtype="float32", shapes=(), out_dir=folder, name="t",
        plan=Plan.of(wait=1, warmup=1, active=3, repeat=repeat), iterations=5 * repeat - 1, timing_budget_ns=0,
        calibrate=False,
    )  # fmt: skip


def test_what_was_known_at_capture_is_told_when_the_trace_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = cut_short(tmp_path, repeat=1)
    (missing,) = record.findings
    assert missing.message == "2 of 3 planned iterations were recorded, because the run ended after 4 iterations."
    assert main(["trace", str(tmp_path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert missing.message in shown
    assert "── Recording ──" in shown
    assert "Iterations 2, 3 · of 4 iterations run" in shown
    assert "skip 0, then wait 1, warm up 1, record 3" in shown
    report = diagnose(read_trace(record.files[0].path))
    assert report.recording is not None
    assert (report.recording.iterations, report.recording.step_ns) == ((2, 3), record.step_ns)


def test_of_several_traces_each_tells_its_part_and_the_folder_all_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = cut_short(tmp_path, repeat=2)
    parts = [read_trace(file.path).recording for file in record.files]
    assert [part.iterations for part in parts if part is not None] == [(2, 3, 4), (7, 8)]
    assert main(["trace", str(tmp_path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count(record.findings[0].message) == 1
    assert "5 iterations in all 2 traces" in shown


def test_a_record_of_another_trace_is_not_believed(tmp_path: Path) -> None:
    (file,) = cut_short(tmp_path, repeat=1).files
    path = Path(file.path)
    path.write_bytes(compress(b'{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]}'))
    trace = read_trace(path)
    assert trace.recording is None
    assert "step-missing" not in {finding.code for finding in trace.findings}


def test_a_record_that_cannot_be_read_is_said_and_the_trace_is_read(tmp_path: Path) -> None:
    (file,) = cut_short(tmp_path, repeat=1).files
    (tmp_path / "t.capture.json").write_text("{")
    trace = read_trace(file.path)
    assert trace.recording is None
    assert [finding.code for finding in trace.findings if "t.capture.json" in finding.message] == ["unreadable"]
