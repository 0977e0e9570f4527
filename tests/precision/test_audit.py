"""The audit against a second count: the profiler's rows of the same step, run without any mode of ours."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from referee.precision.audit import audit  # noqa: E402
from referee.precision.control import Control, Ends, Setting  # noqa: E402
from referee.precision.policy import policies, registered  # noqa: E402
from referee.precision.subject import Subject, make_subject, restored  # noqa: E402

from .models import FAMILIES  # noqa: E402

WORDS = {"c10::BFloat16": "bfloat16", "c10::Half": "float16", "float": "float32"}
CODES = {"5": "float16", "6": "float32", "7": "float64", "15": "bfloat16"}
"""Scalar types as the profiler writes them: by name for inputs, by number for a dtype argument."""

Key = tuple[str, str, tuple[str, ...]]


def profiled(subject: Subject, setting: Setting, folder: Path) -> tuple[Counter[Key], Counter[tuple[str, str, str]]]:
    """Operators (phase, name, floating input dtypes) and casts (phase, from, to) by the profiler's rows."""
    control = Control(
        setting, device_type=subject.device_type, own_sites=subject.own_sites, ends=Ends(before_update=True)
    )
    with restored(subject), torch.profiler.profile(record_shapes=True) as profiler:
        control.call(subject.step)
    path = folder / "trace.json"
    profiler.export_chrome_trace(str(path))
    rows = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("cat") == "cpu_op"]
    return count_rows(rows)


class Row:
    """A row and the row that it lies in."""

    def __init__(self, event: dict[str, Any], parent: Row | None) -> None:
        self.name, self.args, self.parent = str(event["name"]), event["args"], parent
        self.end = float(event["ts"]) + float(event["dur"])
        self.wrapper = False
        """Autocast's kernel for an operator casts and calls the operator again: only the inner row reaches a kernel."""
        if parent is not None and parent.name == self.name and self.name in autocast_names():
            parent.wrapper = True

    def above(self) -> Iterator[Row]:
        row = self.parent
        while row is not None:
            yield row
            row = row.parent

    def computes(self) -> bool:
        return self.name.startswith("aten::") and not self.wrapper and not composite(self.name)


@functools.cache
def autocast_names() -> frozenset[str]:
    return frozenset(name.partition(".")[0] for name in registered("AutocastCPU"))


def tree(events: list[dict[str, Any]]) -> list[Row]:
    rows: list[Row] = []
    inner: dict[object, Row | None] = {}
    for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        parent = inner.get(event["tid"])
        while parent is not None and parent.end <= event["ts"]:
            parent = parent.parent
        inner[event["tid"]] = row = Row(event, parent)
        rows.append(row)
    return rows


def saves(outer: Row, row: Row) -> bool:
    """Autograd's kernel of an operator in place clones what backward will need, before the operator's own kernel."""
    return outer.name.endswith("_") and row.name == "aten::clone"


def count_rows(events: list[dict[str, Any]]) -> tuple[Counter[Key], Counter[tuple[str, str, str]]]:
    """Only rows that the dispatcher hands to a kernel, and not those that such a kernel calls in turn."""
    ops: Counter[Key] = Counter()
    casts: Counter[tuple[str, str, str]] = Counter()
    for row in tree(events):
        if not row.computes() or any(outer.computes() and not saves(outer, row) for outer in row.above()):
            continue
        backward = any(outer.name.startswith("autograd::engine::evaluate_function") for outer in row.above())
        # A Python number among the arguments is written as a double, which none of these models computes in.
        types = flatten(row.args.get("Input type", []))
        floats = tuple(WORDS[t] for t in types if t in WORDS)
        phase = "backward" if backward else "forward"
        ops[phase, row.name, floats] += 1
        if row.name == "aten::_to_copy" and floats:
            target = CODES.get(row.args["Concrete Inputs"][1], floats[0])
            if target != floats[0]:
                casts[phase, floats[0], target] += 1
    return ops, casts


def flatten(types: list[object]) -> list[object]:
    """A list of tensors is written as ``TensorList``: its dtypes are not told."""
    return [item for entry in types for item in (entry if isinstance(entry, list) else [entry])]


def composite(name: str) -> bool:
    """Whether the operator is carried out through others only, in every overload (rows do not tell the overload)."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    usual = [full for full in overloads()[name] if "out" not in full.partition(".")[2] and "name" not in full.lower()]
    return all(has(full, "CompositeImplicitAutograd") for full in usual)


@functools.cache
def overloads() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for full in torch._C._dispatch_get_all_op_names():
        found.setdefault(full.partition(".")[0], []).append(full)
    return found


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_audit_equals_the_profilers_rows(family: str, dtype: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, step = FAMILIES[family]()
    subject = make_subject(step, device_type="cpu", model=model)
    setting = Setting(name=dtype, autocast=dtype)
    ops, casts = profiled(subject, setting, tmp_path)
    recorded = audit(subject, setting, policies=policies("cpu")).recording
    ours = Counter(("backward" if c.backward else "forward", c.source, c.target) for c in recorded.casts)
    assert ours == casts
    assert sum(casts.values()) > 0
    seen = Counter(("backward" if op.backward else "forward", op.op, op.inputs) for op in recorded.ops if not op.view)
    views = {op.op for op in recorded.ops if op.view}
    assert comparable(seen, views) == comparable(ops, views)


def comparable(counts: Counter[Key], views: set[str]) -> Counter[Key]:
    """Without views, which compute nothing; in place or not told apart, because watching keeps gradients from being
    added up in place; without the dtypes of tensors in lists, which the profiler does not write."""
    plain: Counter[Key] = Counter()
    for (phase, op, inputs), count in counts.items():
        if op not in views:
            plain[phase, op.rstrip("_"), () if takes_lists(op) else inputs] += count
    return plain


@functools.cache
def takes_lists(op: str) -> bool:
    packet = getattr(torch.ops.aten, op.removeprefix("aten::"))
    arguments = [a for overload in packet.overloads() for a in getattr(packet, overload)._schema.arguments]
    return any("List[" in str(a.type) and "Tensor" in str(a.type) for a in arguments)


def doubled(times: int) -> tuple[int, int, int]:
    """Weight casts, repeats and kept casts of a model that is called several times in one region."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    inputs = torch.randn(3, 4)
    subject = make_subject(
        lambda: sum(model(inputs).float().sum() for _ in range(times)), device_type="cpu", model=model
    )
    found = audit(subject, Setting(name="bfloat16", autocast="bfloat16"), policies=policies("cpu"))
    weights = [group for group in found.groups if group.of == "weight"]
    return sum(g.count for g in weights), sum(g.repeats for g in weights), found.kept


def test_a_weight_is_cast_once_in_a_region_and_found_cast_after_that() -> None:
    assert doubled(1) == (4, 0, 0)
    assert doubled(3) == (4, 0, 8)


def test_a_context_for_every_call_casts_the_weights_again() -> None:
    model, inputs = torch.nn.Linear(4, 4), torch.randn(3, 4)

    def step() -> torch.Tensor:
        total = torch.zeros(())
        for _ in range(3):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                total = total + model(inputs).float().sum()
        return total

    subject = make_subject(step, device_type="cpu", model=model, own_sites=True)
    found = audit(subject, Setting(name="bfloat16", autocast="bfloat16"), policies=policies("cpu"))
    (weights,) = (group for group in found.groups if group.of == "weight")
    assert (weights.count, weights.repeats, found.kept) == (6, 4, 0)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda m, x: torch.nn.functional.linear(x, m.weight), "lowered"),
        (lambda m, x: torch.nn.functional.mse_loss(m(x), x), "policy"),
        (lambda m, x: torch.cat([m(x), x]), "promotion"),
        (lambda m, x: x.relu(), "inputs"),
        (lambda m, x: m(x).float(), "explicit"),
    ],
)
def test_why_an_operator_runs_in_its_dtype(call: Any, why: str) -> None:
    model, inputs = torch.nn.Linear(4, 4), torch.randn(3, 4)
    subject = make_subject(lambda: call(model, inputs).sum(), device_type="cpu", model=model)
    found = audit(subject, Setting(name="bfloat16", autocast="bfloat16"), policies=policies("cpu"))
    names = {"lowered": "mm", "policy": "mse_loss", "promotion": "cat", "inputs": "relu"}
    if why == "explicit":
        assert [g.who for g in found.groups if g.source == "bfloat16" and g.phase == "forward"] == ["explicit"]
    else:
        (op,) = (op for op in found.ops if op.op == f"aten::{names[why]}" and op.phase == "forward")
        assert op.why == why
