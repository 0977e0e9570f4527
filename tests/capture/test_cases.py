"""What people have run into when they profiled, each as a test with the right answer."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from referee.capture import Capture, Plan, capture, session
from referee.capture.findings import judge_capture
from referee.capture.rows import decode, nest
from referee.device.registry import open_device
from referee.errors import OptionError, StepError
from referee.records import schema
from referee.records.capture import Capture as Record
from referee.records.capture import CaptureFile, CaptureOptions, Integrity, ProfilerCost

torch = pytest.importorskip("torch")


def take(step: Callable[[], object], folder: Path, **given: Any) -> Record:
    given = {"timing_budget_ns": 0, "calibrate": False, "name": "t", **given}
    return capture(step, device=open_device("cpu"), dtype="float32", shapes=(), out_dir=folder, **given)


def ops_in(path: str, name: str) -> int:
    with gzip.open(path) as stream:
        return sum(e.get("cat") == "cpu_op" and e["name"] == name for e in json.load(stream)["traceEvents"])


def codes(record: Record) -> list[str]:
    return [finding.code for finding in record.findings]


class TestRunShorterThanWaitAndWarmup:
    """Ten epochs profiled and nothing printed: torch.profiler gives no file, an empty table, and no word."""

    def test_is_refused_before_the_run(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError) as caught:
            take(lambda: None, tmp_path, plan=Plan.of(wait=2, warmup=2, active=2), iterations=3)
        assert caught.value.message.startswith("3 iterations are run, but the plan records from iteration 4 on")
        assert caught.value.hint == "Run at least 5."

    def test_is_said_after_a_loop_of_the_users_own(self, tmp_path: Path) -> None:
        def loop() -> Capture:
            with Capture(
                out_dir=tmp_path, name="t", plan=Plan.of(wait=2, warmup=2, active=2), calibrate=False
            ) as taken:
                for _ in taken.over(range(3)):
                    torch.ones(1)
            return taken

        with pytest.warns(UserWarning, match="3 iterations were run, but the plan records from iteration 4 on"):
            taken = loop()
        assert taken.result is not None
        assert codes(taken.result) == ["nothing-recorded"]


class TestEveryOpCountedTwice:
    """A flop counter or any other dispatch mode doubles the rows of each operator."""

    @pytest.fixture
    def products(self) -> Callable[[], object]:
        left = torch.randn(8, 8)

        def step() -> object:
            return [left @ left for _ in range(100)]

        return step

    def test_a_mode_is_found_in_the_file(self, tmp_path: Path, products: Callable[[], object]) -> None:
        from torch.utils.flop_counter import FlopCounterMode

        def counted() -> object:
            with FlopCounterMode(display=False):
                return products()

        record = take(counted, tmp_path, plan=Plan.of(active=1))
        assert ops_in(record.files[0].path, "aten::mm") == 200
        (finding,) = record.findings
        assert finding.code == "counts-doubled"
        assert finding.evidence["repeated_ops"] == 100

    def test_a_transform_is_not_called_a_mode(self, tmp_path: Path) -> None:
        """Each level of vmap and grad dispatches every operator once more; there is no mode to take out."""
        per_sample = torch.func.vmap(torch.func.grad(lambda x: (x.sin() * x).exp().sum()))
        inputs = torch.randn(4, 8)
        record = take(lambda: per_sample(inputs), tmp_path, plan=Plan.of(active=1))
        (finding,) = [f for f in record.findings if f.code == "counts-doubled"]
        assert "torch.func" in finding.message
        assert "Take the mode" not in finding.hint

    def test_without_a_mode_nothing_is_said(self, tmp_path: Path, products: Callable[[], object]) -> None:
        record = take(products, tmp_path, plan=Plan.of(active=1))
        assert ops_in(record.files[0].path, "aten::mm") == 100
        assert record.findings == ()


def test_adding_up_total_times_counts_nesting(tmp_path: Path) -> None:
    """conv2d, convolution, _convolution and the kernel carry the same time: only self times add up."""
    images, weight = torch.randn(4, 3, 32, 32), torch.randn(8, 3, 3, 3)
    record = take(lambda: torch.nn.functional.conv2d(images, weight), tmp_path, plan=Plan.of(active=1))
    with gzip.open(record.files[0].path) as stream:
        file = decode(stream.read())
    assert file is not None
    rows = list(nest(file.events, categories=frozenset({"cpu_op"})))
    totals = sum(row.event.end_ns - row.event.start_ns for row in rows)
    outermost = sum(row.event.end_ns - row.event.start_ns for row in rows if row.parent is None)
    assert sum(row.self_ns for row in rows) == outermost
    assert totals > 3 * outermost


def test_the_cost_of_recording_is_measured_and_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dispatch-bound model doubles under the profiler: the record says what it costs here and what it costs alone."""
    known = ProfilerCost(per_row_ns=400.0, low_ns=380.0, high_ns=420.0, chain=1000, rounds=9, options=CaptureOptions())
    monkeypatch.setattr(session, "calibrate_cost", lambda *, options: replace(known, options=options))
    other = torch.ones(1)

    def step() -> Any:
        total = other
        for _ in range(200):
            total = total * other
        return total

    record = take(step, tmp_path, calibrate=True, timing_budget_ns=5_000_000)
    assert record.cost == known
    assert record.unprofiled_step_ns is not None
    beside = json.loads(Path(f"{record.files[0].path}.provenance.json").read_text())["method"]
    assert beside["profiler_cost_ns"] == 400.0
    assert beside["unprofiled_step_ns"] == record.unprofiled_step_ns


class TestShapesKeepTensorsAlive:
    """With shapes every operand stays alive until the end of the capture, so memory grows and its figures are wrong."""

    SCRIPT = """
import sys, torch
from referee.capture import Plan, capture
from referee.device.registry import open_device
from referee.records.capture import CaptureOptions

def step():
    for _ in range(12):
        left = torch.empty(1 << 20).fill_(1.0)
        left + 1

options = CaptureOptions(shapes=sys.argv[2] == "shapes", memory=True)
record = capture(step, device=open_device("cpu"), dtype="float32", shapes=(), out_dir=sys.argv[1], name=sys.argv[2],
                 plan=Plan.of(active=20), options=options, timing_budget_ns=0, calibrate=False)
print(record.files[0].memory_growth_bytes, *[finding.code for finding in record.findings])
"""

    def grown(self, folder: Path, which: str) -> tuple[int, list[str]]:
        unset = {name: value for name, value in os.environ.items() if name != "KINETO_LOG_LEVEL"}
        ran = subprocess.run(
            [sys.executable, "-c", self.SCRIPT, str(folder), which],
            capture_output=True,
            text=True,
            check=True,
            env=unset,
        )
        assert "profiler_start" not in ran.stderr, "Kineto's own words on standard error"
        growth, *found = ran.stdout.split()
        return int(growth), found

    @pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory cannot be read here")
    def test_the_capture_says_so_with_the_figure(self, tmp_path: Path) -> None:
        with_shapes, found = self.grown(tmp_path, "shapes")
        without, found_without = self.grown(tmp_path, "none")
        # 20 steps of 12 operands of 4 MiB are held with shapes; without, a few temporaries at a time. What the warm-up
        # steps held is free and still resident when the window begins, and is used first: growth is less by some.
        assert with_shapes > (20 - 1) * 12 * 4 * 1024**2 * 0.85
        assert without < with_shapes / 4
        assert found == ["memory-invalid"]
        assert found_without == []


def integrity(**given: Any) -> Integrity:
    base = {"events": 10, "ops": 5, "steps_found": (2,), "device_rows": 0, "launches": 0}
    return Integrity(**{**base, "launches_unmatched": 0, "device_rows_unlinked": 0, "lost": None, **given})


class TestNoDeviceRowsAlthoughAskedFor:
    """CUDA activity was requested and only CPU columns appear: a failed tracing library, not an idle device."""

    def judge(self, found: Integrity, activity: str | None) -> list[tuple[str, str]]:
        files = [CaptureFile(path="t.gz", iterations=(2,), size_bytes=1, integrity=found)]
        plan = Plan.of(wait=1, warmup=1, active=1)
        judged = judge_capture(plan, iterations_run=3, files=files, activity=activity, options=CaptureOptions())
        return [(finding.code, finding.message) for finding in judged]

    def test_neither_launches_nor_rows(self) -> None:
        ((code, message),) = self.judge(integrity(), "CUDA")
        assert code == "no-device-activity"
        assert message == "CUDA activity was asked for, but the capture holds no device row (nor any launch)."

    def test_launches_whose_rows_were_lost(self) -> None:
        ((code, message),) = self.judge(integrity(launches=40, launches_unmatched=40), "CUDA")
        assert code == "no-device-activity"
        assert "40 launches were recorded: their device records were lost" in message

    def test_some_rows_were_lost(self) -> None:
        ((code, message),) = self.judge(integrity(device_rows=10, launches=40, launches_unmatched=30), "CUDA")
        assert (code, message) == ("lost-device-rows", "t.gz: 30 of 40 launches have no device row.")

    def test_a_whole_capture(self) -> None:
        assert self.judge(integrity(device_rows=40, launches=40), "CUDA") == []

    def test_nothing_is_missed_on_a_cpu(self) -> None:
        assert self.judge(integrity(), None) == []


def test_first_trace_early_later_ones_rare(tmp_path: Path) -> None:
    """A trace at step 100 and then each 5,000, scaled down: by the list of steps, and by skipping the first wait."""
    for plan in (
        Plan.at((10, 510, 1010)),
        Plan.of(skip=9, wait=498, warmup=1, active=1, repeat=3, skip_first_wait=True),
    ):
        record = take(lambda: torch.ones(1), tmp_path, plan=plan, iterations=1200)
        assert [file.iterations for file in record.files] == [(10,), (510,), (1010,)]


def test_memory_with_shapes_in_a_loop_of_the_users_own_is_refused_plainly(tmp_path: Path) -> None:
    """Nobody can run that loop again, so there is no second pass: no timeline, and how to get one."""
    options = CaptureOptions(shapes=True, memory=True)
    taken = Capture(out_dir=tmp_path, name="t", plan=Plan.of(wait=0, active=2), options=options, calibrate=False)

    def loop() -> None:
        with taken:
            for _ in taken.over(range(3)):
                torch.ones(1)

    with pytest.warns(
        UserWarning, match=r"No memory timeline was written, because shapes were.*in a capture of its own"
    ):
        loop()
    assert taken.result is not None
    (finding,) = taken.result.findings
    assert (finding.code, finding.severity, finding.evidence["second_pass"]) == ("memory-invalid", "warning", None)
    assert not list(tmp_path.glob("*.memory.json"))


def test_a_step_that_raises_in_the_second_pass_keeps_the_trace(tmp_path: Path) -> None:
    """The plan needs iterations 0 to 3; the second pass warms up once (4) and raises in its first recorded one (5)."""
    calls = iter(range(100))

    def step() -> object:
        if next(calls) == 5:
            raise ValueError("bad batch")
        return torch.ones(1)

    options = CaptureOptions(shapes=True, memory=True)
    with pytest.raises(StepError) as caught:
        take(step, tmp_path, plan=Plan.of(wait=1, warmup=1, active=2), options=options)
    assert caught.value.message == (
        "The step raised ValueError in iteration 5, in the second pass, for memory without shapes: bad batch."
    )
    assert "2 iterations (2 to 3) had been recorded and saved" in caught.value.hint
    record = schema.load(tmp_path / "t.capture.json")
    assert isinstance(record, Record)
    assert [file.iterations for file in record.files] == [(2, 3)]
    assert ops_in(record.files[0].path, "aten::ones") == 2
    assert [finding.code for finding in record.findings] == ["memory-invalid"]
    assert record.findings[0].message.startswith("No memory timeline was written")
    assert not torch.autograd._profiler_enabled()
    assert not list(tmp_path.glob(".*"))


def test_memory_with_shapes_is_taken_in_a_second_pass(tmp_path: Path) -> None:
    """The timeline is that of a pass without shapes: each tensor is freed before the next one comes."""

    def step() -> None:
        for _ in range(4):
            torch.empty(1 << 18)

    options = CaptureOptions(shapes=True, memory=True)
    record = take(step, tmp_path, plan=Plan.of(active=2, repeat=2), options=options)
    assert [file.beside for file in record.files] == [(), (str(tmp_path / "t.1.memory.json"),)]
    (timeline,) = json.loads((tmp_path / "t.1.memory.json").read_text())["devices"]
    assert (timeline["allocations"], timeline["frees"], timeline["peak_bytes"]) == (2 * 4, 2 * 4, 1 << 20)
    (finding,) = record.findings
    assert (finding.code, finding.severity) == ("memory-invalid", "info")
    assert str(tmp_path / "t.1.memory.json") in finding.message
    assert not list(tmp_path.glob(".*"))


def test_work_in_other_threads_is_said_not_to_be_recorded(tmp_path: Path) -> None:
    left = torch.ones(4, 4)
    with ThreadPoolExecutor(1) as pool:
        found = take(lambda: pool.submit(torch.mm, left, left).result(), tmp_path, plan=Plan.of(wait=0, active=2))
        (finding,) = [finding for finding in found.findings if finding.code == "no-operators"]
        assert "other threads" in finding.hint
        assert finding.evidence["iterations"] == 2
        whole = take(lambda: torch.mm(left, left), tmp_path / "own", plan=Plan.of(wait=0, active=2))
    assert "no-operators" not in codes(whole)
