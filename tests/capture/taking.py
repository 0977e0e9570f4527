"""What the tests of captures share: a step, a capture of it, and what is in its file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from referee.capture import capture
from referee.device.registry import open_device
from referee.records.capture import Capture as Record
from referee.records.provenance import TensorSpec

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
    import torch

    left, right = torch.ones(2), torch.ones(2)
    return lambda: torch.add(left, right)


def take(step: Callable[[], object], folder: Path, **given: Any) -> Record:
    given = {"timing_budget_ns": 0, "calibrate": False, "name": "t", **given}
    return capture(step, device=open_device("cpu"), dtype="float32", shapes=SHAPES, out_dir=folder, **given)
