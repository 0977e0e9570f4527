"""Captures with the real profiler and trivial steps: what is in the files is what was promised."""

from __future__ import annotations

import gzip
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from referee.capture import Capture, Plan, capture
from referee.device.registry import open_device
from referee.errors import OptionError, StepError, UserError
from referee.records import schema
from referee.records.capture import Capture as Record
from referee.records.capture import CaptureOptions
from referee.records.provenance import TensorSpec
from referee.records.provenance_file import load_provenance

torch = pytest.importorskip("torch")

SHAPES = (TensorSpec(role="input", shape=(2,), stride=(1,), dtype="float32", device="cpu"),)


def events(path: str | Path) -> list[dict[str, Any]]:
    with gzip.open(path) as stream:
        found: list[dict[str, Any]] = json.load(stream)["traceEvents"]
    return found


def steps_in(path: str | Path) -> list[int]:
    named = [e["name"] for e in events(path) if str(e.get("name", "")).startswith("ProfilerStep#")]
    return sorted(int(name.partition("#")[2]) for name in named)


def ops_in(path: str | Path, name: str) -> int:
    return sum(e.get("cat") == "cpu_op" and e["name"] == name for e in events(path))


def add_step() -> Callable[[], Any]:
    left, right = torch.ones(2), torch.ones(2)
    return lambda: torch.add(left, right)


def take(step: Callable[[], object], folder: Path, **given: Any) -> Record:
    given = {"timing_budget_ns": 0, "calibrate": False, "name": "t", **given}
    return capture(step, device=open_device("cpu"), dtype="float32", shapes=SHAPES, out_dir=folder, **given)


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
    assert caught.value.message == "The step raised ValueError in iteration 5: bad batch."
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


def test_a_capture_replaces_the_one_of_the_same_name(tmp_path: Path) -> None:
    take(add_step(), tmp_path, plan=Plan.of(repeat=3))
    (tmp_path / "t.other.0.pt.trace.json.gz").write_bytes(b"somebody else's")
    take(add_step(), tmp_path, plan=Plan.of(repeat=1))
    names = sorted(path.name for path in tmp_path.iterdir() if path.name.endswith(".gz"))
    assert names == ["t.0.pt.trace.json.gz", "t.other.0.pt.trace.json.gz"]


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


def run_loop(taken: Capture, items: Iterable[int]) -> None:
    with taken:
        for _ in taken.over(items):
            torch.ones(2)


def interrupted_at(iteration: int) -> Iterator[int]:
    yield from range(iteration)
    raise KeyboardInterrupt


class TestLoop:
    def test_records_the_planned_iterations(self, tmp_path: Path) -> None:
        step = add_step()
        with Capture(out_dir=tmp_path, name="loop", calibrate=False, plan=Plan.of(wait=1, warmup=1, active=2)) as taken:
            for _ in range(8):
                step()
                taken.step()
        assert taken.result is not None
        assert [file.iterations for file in taken.result.files] == [(2, 3)]
        assert ops_in(taken.result.files[0].path, "aten::add") == 2
        assert taken.result.findings == ()

    def test_over_ends_an_iteration_with_each_item(self, tmp_path: Path) -> None:
        step = add_step()
        with Capture(out_dir=tmp_path, name="loop", calibrate=False, plan=Plan.at((1, 4))) as taken:
            for _ in taken.over(range(6)):
                step()
        assert taken.result is not None
        assert [steps_in(file.path) for file in taken.result.files] == [[1], [4]]

    def test_a_forgotten_step_is_a_clear_sentence(self, tmp_path: Path) -> None:
        def loop() -> None:
            with Capture(out_dir=tmp_path, name="loop", calibrate=False, plan=Plan.of(wait=0, warmup=0, active=2)):
                for step in [add_step()] * 3:
                    step()

        with pytest.warns(UserWarning, match=r"No iteration was completed.*call step\(\)"):
            loop()
        assert list(tmp_path.glob("*.gz")) == []

    def test_a_short_loop_warns_and_keeps_what_it_has(self, tmp_path: Path) -> None:
        def loop() -> None:
            with Capture(
                out_dir=tmp_path, name="loop", calibrate=False, plan=Plan.of(wait=0, warmup=1, active=5)
            ) as taken:
                for _ in taken.over(range(2)):
                    torch.ones(2)

        with pytest.warns(UserWarning, match="1 of 5 planned iterations"):
            loop()
        assert steps_in(tmp_path / "loop.0.pt.trace.json.gz") == [1]

    def test_a_break_in_the_middle_marks_the_unfinished_iteration(self, tmp_path: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Capture(
                out_dir=tmp_path, name="loop", calibrate=False, plan=Plan.of(wait=0, warmup=0, active=5)
            ) as taken:
                for number in taken.over(range(9)):
                    torch.ones(2)
                    if number == 2:
                        break
        path = tmp_path / "loop.0.pt.trace.json.gz"
        assert steps_in(path) == [0, 1]
        assert any(e.get("name") == "incomplete iteration 2" for e in events(path))

    def test_a_step_outside_the_block_is_one_sentence_before_and_nothing_after(self, tmp_path: Path) -> None:
        taken = Capture(out_dir=tmp_path, name="loop", calibrate=False, plan=Plan.of(wait=3, warmup=0, active=1))
        with pytest.raises(UserError, match="before the capture began"):
            taken.step()
        with pytest.warns(UserWarning, match="2 iterations were run"):
            run_loop(taken, range(2))
        for _ in range(5):
            taken.step()
        assert not torch.autograd._profiler_enabled()
        assert list(tmp_path.glob("*.gz")) == []

    def test_a_second_loop_with_the_same_capture_is_one_sentence(self, tmp_path: Path) -> None:
        taken = Capture(out_dir=tmp_path, name="loop", calibrate=False, plan=Plan.of(wait=0, warmup=0, active=1))
        with taken:
            for _ in taken.over(range(2)):
                torch.ones(2)
        with pytest.raises(UserError, match="used already"), taken:
            pass
        assert steps_in(tmp_path / "loop.0.pt.trace.json.gz") == [0]

    def test_a_capture_inside_another_is_one_sentence(self, tmp_path: Path) -> None:
        plan = Plan.of(wait=0, warmup=0, active=2)
        outer, inner = (Capture(out_dir=tmp_path, name=n, calibrate=False, plan=plan) for n in ("outer", "inner"))
        with pytest.raises(UserError, match="Another torch profiler"), outer, inner:
            pass
        assert not torch.autograd._profiler_enabled()
        assert list(tmp_path.iterdir()) == []

    def test_an_interrupt_goes_on_with_a_note(self, tmp_path: Path) -> None:
        taken = Capture(out_dir=tmp_path, name="loop", calibrate=False, plan=Plan.of(wait=0, warmup=1, active=9))
        with pytest.raises(KeyboardInterrupt) as caught:
            run_loop(taken, interrupted_at(4))
        assert "3 iterations (1 to 3) had been recorded and saved" in caught.value.__notes__[0]
        assert steps_in(tmp_path / "loop.0.pt.trace.json.gz") == [1, 2, 3]

    def test_an_exception_goes_on_with_a_note(self, tmp_path: Path) -> None:
        def loop() -> None:
            with Capture(
                out_dir=tmp_path, name="loop", calibrate=False, plan=Plan.of(wait=0, warmup=0, active=9)
            ) as taken:
                for number in taken.over(range(9)):
                    torch.ones(2)
                    _ = 1 // (3 - number)

        with pytest.raises(ZeroDivisionError) as caught:
            loop()
        assert "3 iterations (0 to 2) had been recorded" in caught.value.__notes__[0]
        assert steps_in(tmp_path / "loop.0.pt.trace.json.gz") == [0, 1, 2]


def conv_step() -> Callable[[], Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Sequential(torch.nn.Linear(6, 2)))
    images = torch.randn(2, 3, 8, 8)
    return lambda: model(images)


class TestOptions:
    def test_modules_are_named_by_their_place(self, tmp_path: Path) -> None:
        record = take(conv_step(), tmp_path, plan=Plan.of(active=2), options=CaptureOptions(modules=True))
        rows = events(record.files[0].path)
        named = [e["name"] for e in rows if str(e.get("name", "")).startswith("nn.Module: ") and e["ph"] == "X"]
        assert sorted(named) == sorted(
            2
            * [
                "nn.Module: Sequential (Sequential)",
                "nn.Module: Sequential.0 (Conv2d)",
                "nn.Module: Sequential.1 (ReLU)",
                "nn.Module: Sequential.2 (Sequential)",
                "nn.Module: Sequential.2.0 (Linear)",
            ]
        )
        conv = next(e for e in rows if e.get("name") == "aten::conv2d")
        around = next(e for e in rows if e.get("name") == "nn.Module: Sequential.0 (Conv2d)")
        assert around["ts"] <= conv["ts"]
        assert conv["ts"] + conv["dur"] <= around["ts"] + around["dur"]

    def test_modules_are_not_marked_once_the_capture_is_over(self, tmp_path: Path) -> None:
        from torch.nn.modules import module as registry

        take(conv_step(), tmp_path, options=CaptureOptions(modules=True))
        assert not registry._global_forward_hooks
        assert not registry._global_forward_pre_hooks

    def test_a_module_that_raises_closes_its_range(self, tmp_path: Path) -> None:
        class Fails(torch.nn.Module):
            def forward(self, inputs: Any) -> Any:
                raise ValueError("no")

        inner, good = torch.nn.Sequential(Fails()), torch.nn.Linear(2, 2)

        def step() -> Any:
            with pytest.raises(ValueError, match="no"):
                inner(torch.ones(2))
            return good(torch.ones(2))

        record = take(step, tmp_path, plan=Plan.of(active=1), options=CaptureOptions(modules=True))
        rows = {e["name"]: e for e in events(record.files[0].path) if str(e.get("name", "")).startswith("nn.Module")}
        failed, after = rows["nn.Module: Sequential (Sequential)"], rows["nn.Module: Linear (Linear)"]
        assert failed["ts"] + failed["dur"] <= after["ts"]

    def test_user_annotations_are_kept(self, tmp_path: Path) -> None:
        def step() -> Any:
            with torch.profiler.record_function("my phase"):
                return torch.ones(2)

        record = take(step, tmp_path, plan=Plan.of(active=2))
        kept = [e for e in events(record.files[0].path) if e.get("name") == "my phase"]
        assert [e["cat"] for e in kept] == ["user_annotation"] * 2

    def test_memory_gives_a_timeline_that_balances(self, tmp_path: Path) -> None:
        def step() -> None:
            held = torch.empty(1 << 18)  # 1 MiB of float32
            del held

        record = take(step, tmp_path, plan=Plan.of(active=3), options=CaptureOptions(memory=True))
        (path,) = record.files[0].beside
        (timeline,) = json.loads(Path(path).read_text())["devices"]
        assert (timeline["device"], timeline["allocations"], timeline["frees"]) == ("cpu", 3, 3)
        assert (timeline["peak_bytes"], timeline["held_bytes"]) == (1 << 20, 0)

    def test_stacks_are_folded_beside_the_trace(self, tmp_path: Path) -> None:
        record = take(conv_step(), tmp_path, plan=Plan.of(active=1), options=CaptureOptions(stacks=True))
        (path,) = record.files[0].beside
        lines = Path(path).read_text().splitlines()
        assert any("aten::conv2d" in line and "test_capture.py" in line for line in lines)
        # As flame graph readers take it: frames between semicolons, the last space, a whole number.
        assert all(re.fullmatch(r"[^;]+(;[^;]+)* [1-9]\d*", line) for line in lines)

    def test_flops_of_a_product_are_two_per_element_and_term(self, tmp_path: Path) -> None:
        left, right = torch.randn(4, 8), torch.randn(8, 16)
        record = take(
            lambda: left @ right, tmp_path, plan=Plan.of(active=2), options=CaptureOptions(flops=True)
        )  # fmt: skip
        (path,) = record.files[0].beside
        assert json.loads(Path(path).read_text())["ops"]["aten::mm"] == 2 * (2 * 4 * 8 * 16)

    def test_what_lay_beside_an_earlier_capture_goes_with_it(self, tmp_path: Path) -> None:
        take(conv_step(), tmp_path, options=CaptureOptions(stacks=True))
        take(conv_step(), tmp_path)
        assert not list(tmp_path.glob("*.folded"))


def test_waiting_iterations_are_timed_too_but_for_those_right_after_a_file(tmp_path: Path) -> None:
    """Unprofiled and profiled iterations take turns, so that a drifting machine drifts for both."""
    plan = Plan.of(wait=3, warmup=1, active=1, repeat=4)
    record = take(add_step(), tmp_path, plan=plan, timing_budget_ns=2)
    before_and_after = 2 * 5
    assert len(record.unprofiled_ns) == before_and_after + 4 * (3 - 1)
    assert record.unprofiled_step_ns == median(record.unprofiled_ns)
    assert take(add_step(), tmp_path, plan=plan).unprofiled_ns == ()
