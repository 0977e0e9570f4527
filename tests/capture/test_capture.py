"""Captures with the real profiler and trivial steps: what is in the files is what was promised."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from referee.capture import Plan, capture
from referee.device.registry import open_device
from referee.errors import OptionError, StepError, UserError
from referee.records import schema
from referee.records.capture import Capture as Record
from referee.records.capture import CaptureOptions
from referee.records.provenance_file import load_provenance

from .taking import SHAPES, add_step, events, ops_in, steps_in, take

torch = pytest.importorskip("torch")


def test_each_cycle_is_one_file_with_its_own_iterations(tmp_path: Path) -> None:
    record = take(add_step(), tmp_path, plan=Plan.of(skip=1, wait=2, warmup=1, active=2, repeat=3))
    assert [file.iterations for file in record.files] == [(4, 5), (9, 10), (14, 15)]
    assert [steps_in(file.path) for file in record.files] == [[4, 5], [9, 10], [14, 15]]
    assert [ops_in(file.path, "aten::add") for file in record.files] == [2, 2, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "t.0.pt.trace.json.gz",
        "t.0.pt.trace.json.gz.provenance.json",
        "t.1.pt.trace.json.gz",
        "t.1.pt.trace.json.gz.provenance.json",
        "t.2.pt.trace.json.gz",
        "t.2.pt.trace.json.gz.provenance.json",
        "t.capture.json",
    ]
    assert record.iterations_run == 16
    assert len(record.step_ns) == 6
    assert record.findings == ()
    assert schema.load(tmp_path / "t.capture.json") == record


def test_the_file_counts_what_its_integrity_says(tmp_path: Path) -> None:
    record = take(add_step(), tmp_path)
    (file,) = record.files
    assert file.size_bytes == Path(file.path).stat().st_size
    assert file.integrity is not None
    rows = events(file.path)
    assert file.integrity.events == len(rows)
    assert file.integrity.ops == sum(e.get("cat") == "cpu_op" and e["ph"] == "X" for e in rows)
    assert file.integrity.steps_found == file.iterations


def test_the_provenance_lies_beside_the_trace(tmp_path: Path) -> None:
    record = take(add_step(), tmp_path, timing_budget_ns=2_000_000)
    beside = load_provenance(record.files[0].path)
    assert beside == record.provenance
    assert beside is not None
    assert beside.value("method.clock") == "profiler"
    assert beside.value("method.plan") == "skip 0, wait 1, warmup 2, active 3, repeat 1"
    assert beside.value("method.unprofiled_step_ns") == record.unprofiled_step_ns
    assert record.unprofiled_step_ns is not None
    assert record.unprofiled_step_ns > 0


def test_a_plan_that_records_nothing_is_refused_before_the_step_runs(tmp_path: Path) -> None:
    def never() -> object:
        raise AssertionError("the step ran")

    with pytest.raises(OptionError, match="records from iteration 4"):
        take(never, tmp_path, plan=Plan.of(wait=2, warmup=2, active=2), iterations=3)
    assert list(tmp_path.iterdir()) == []


def test_a_short_run_is_saved_and_said(tmp_path: Path) -> None:
    record = take(add_step(), tmp_path, plan=Plan.of(wait=1, warmup=1, active=4), iterations=4)
    assert [file.iterations for file in record.files] == [(2, 3)]
    assert steps_in(record.files[0].path) == [2, 3]
    (finding,) = record.findings
    assert (finding.code, finding.evidence["recorded"], finding.evidence["planned"]) == ("step-missing", 2, 4)


def failing_at(iteration: int, error: BaseException) -> Callable[[], object]:
    step, calls = add_step(), iter(range(1000))

    def fails() -> object:
        outputs = step()
        if next(calls) == iteration:
            raise error
        return outputs

    return fails


def test_a_step_that_raises_leaves_the_complete_iterations(tmp_path: Path) -> None:
    with pytest.raises(StepError) as caught:
        take(failing_at(5, ValueError("bad batch")), tmp_path, plan=Plan.of(wait=1, warmup=1, active=10))
    assert caught.value.message == ("The step raised ValueError in iteration 5 (the first is iteration 0): bad batch.")
    assert "3 iterations (2 to 4) had been recorded and saved" in caught.value.hint
    record = schema.load(tmp_path / "t.capture.json")
    assert isinstance(record, Record)
    assert steps_in(record.files[0].path) == [2, 3, 4]
    assert any(e.get("name") == "incomplete iteration 5" for e in events(record.files[0].path))
    assert record.findings[0].message.startswith("3 of 10 planned iterations were recorded, because the step raised")


def test_a_step_that_raises_before_anything_was_recorded_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="Nothing had been recorded yet"):
        take(failing_at(1, ValueError("bad batch")), tmp_path, plan=Plan.of(wait=1, warmup=1, active=10))
    assert list(tmp_path.iterdir()) == []
    assert not torch.autograd._profiler_enabled()


@pytest.mark.parametrize(
    ("call", "when"),
    [(0, "before iteration 0"), (8 + 4, "after iteration 3")],
    ids=["before", "after"],
)
def test_a_step_that_raises_while_it_is_timed_is_in_no_iteration(tmp_path: Path, call: int, when: str) -> None:
    plan = Plan.of(wait=1, warmup=1, active=2)
    with pytest.raises(StepError, match=f"while it was timed without the profiler, {when}: bad batch"):
        take(failing_at(call, ValueError("bad batch")), tmp_path, plan=plan, timing_budget_ns=2)


def test_an_interrupt_saves_and_goes_on_as_an_interrupt(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        take(failing_at(4, KeyboardInterrupt()), tmp_path, plan=Plan.of(wait=0, warmup=1, active=10))
    assert "3 iterations (1 to 3)" in caught.value.__notes__[0]
    assert steps_in(tmp_path / "t.0.pt.trace.json.gz") == [1, 2, 3]
    assert not torch.autograd._profiler_enabled()


def test_a_second_profiler_is_one_sentence(tmp_path: Path) -> None:
    with torch.profiler.profile(), pytest.raises(UserError, match="Another torch profiler"):
        take(add_step(), tmp_path)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Nothing can be written to the folder"):
        take(add_step(), tmp_path / "file" / "deeper")


@pytest.mark.parametrize("name", ["", "a/b", ".hidden"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OptionError):
        take(add_step(), tmp_path, name=name)


@pytest.mark.parametrize(
    ("option", "shows"),
    [
        ("shapes", lambda rows: any("Input Dims" in e.get("args", {}) for e in rows)),
        ("stacks", lambda rows: any(e.get("cat") == "python_function" for e in rows)),
        ("memory", lambda rows: any(e.get("name") == "[memory]" for e in rows)),
    ],
)
def test_options_are_off_unless_asked_for(
    tmp_path: Path, option: str, shows: Callable[[list[dict[str, Any]]], bool]
) -> None:
    def step() -> Any:
        return torch.ones(8) + torch.ones(8)

    assert not shows(events(take(step, tmp_path).files[0].path))
    record = take(step, tmp_path, options=CaptureOptions(**{option: True}))
    assert shows(events(record.files[0].path))
    assert record.provenance.value("method.profiler_options") == option


def test_a_lazy_step_runs_inside_its_own_iteration(tmp_path: Path) -> None:
    device = open_device("lazy")
    left = torch.ones(2, 3).to("lazy")
    record = capture(
        lambda: left + 1, device=device, dtype="float32", shapes=SHAPES, out_dir=tmp_path, name="lazy",
        timing_budget_ns=0, calibrate=False,
    )  # fmt: skip
    assert steps_in(record.files[0].path) == [3, 4, 5]


def test_waiting_iterations_are_timed_too_but_for_those_right_after_a_file(tmp_path: Path) -> None:
    """Unprofiled and profiled iterations take turns, so that a drifting machine drifts for both."""
    plan = Plan.of(wait=3, warmup=1, active=1, repeat=4)
    record = take(add_step(), tmp_path, plan=plan, timing_budget_ns=2)
    before_and_after = 2 * 5
    assert len(record.unprofiled_ns) == before_and_after + 4 * (3 - 1)
    assert record.unprofiled_step_ns == median(record.unprofiled_ns)
    assert take(add_step(), tmp_path, plan=plan).unprofiled_ns == ()
