"""A loop of the user's own, with the real profiler: planned iterations, however the loop ends."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from referee.capture import Capture, Plan
from referee.errors import UserError

from .taking import add_step, events, ops_in, steps_in

torch = pytest.importorskip("torch")


TWO_THREADS = """
import sys, threading, torch
from referee.capture import Capture, Plan
from referee.records.capture import CaptureOptions

plan, options = Plan.of(wait=int(sys.argv[2]), warmup=0, active=3), CaptureOptions(stacks=sys.argv[3] == "stacks")
with Capture(out_dir=sys.argv[1], name="t", calibrate=False, plan=plan, options=options) as taken:
    def run():
        for _ in taken.over(range(3)):
            torch.ones(3) + 1
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
"""


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

    def test_a_loop_that_changes_the_directory_writes_where_it_was_told_to(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with Capture(out_dir="out", name="loop", calibrate=False, plan=Plan.of(wait=0, warmup=1, active=1)) as taken:
            for _ in taken.over(range(3)):
                torch.ones(2)
                monkeypatch.chdir("/")
        assert steps_in(tmp_path / "out" / "loop.0.pt.trace.json.gz") == [1]
        assert (tmp_path / "out" / "loop.capture.json").exists()

    def test_a_folder_that_the_loop_removes_is_made_again(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        with Capture(out_dir=out, name="loop", calibrate=False, plan=Plan.of(wait=0, warmup=1, active=1)) as taken:
            for number in taken.over(range(3)):
                torch.ones(2)
                if number == 0:
                    out.rmdir()
        assert steps_in(out / "loop.0.pt.trace.json.gz") == [1]

    def test_a_folder_that_cannot_be_made_again_is_one_sentence(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        taken = Capture(out_dir=out, name="loop", calibrate=False, plan=Plan.of(wait=0, warmup=1, active=1))

        def loop() -> Iterator[int]:
            yield 0
            out.rmdir()
            out.write_text("something else")
            yield from range(3)

        with pytest.raises(UserError, match="cannot be written: File exists"):
            run_loop(taken, loop())

    @pytest.mark.parametrize("wait", [0, 1], ids=["begins outside the thread", "ends outside the thread"])
    @pytest.mark.parametrize("stacks", ["plain", "stacks"])
    def test_a_cycle_over_two_threads_is_one_sentence(self, tmp_path: Path, wait: int, stacks: str) -> None:
        # In a process of its own: torch 2.13 crashes at the end of a process in which a profiler is still on.
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", TWO_THREADS, str(tmp_path), str(wait), stacks],
            check=False, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert ran.returncode == 1
        assert "did not all run in the thread in which recording began" in ran.stderr
        assert list(tmp_path.glob("*.gz")) == []

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
