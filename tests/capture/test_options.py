"""What else can be recorded, with the real profiler: modules, stacks, memory, FLOPs, and what lies beside the trace."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from referee.capture import Plan
from referee.records.capture import CaptureOptions

from .taking import events, take

torch = pytest.importorskip("torch")


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
        assert any("aten::conv2d" in line and "test_options.py" in line for line in lines)
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
