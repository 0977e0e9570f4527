"""What are all operators made of, coarsely? A short ladder for each, in child processes that may die of one."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from typing import Any

from referee.anatomy.arguments import Wish, make_arguments
from referee.anatomy.children import Report, run_child
from referee.anatomy.operator import Operator, all_operators
from referee.anatomy.prepare import Request, prepare
from referee.anatomy.probe import NoProbe, load_probe
from referee.anatomy.stages import build_ladder
from referee.anatomy.timing import time_pairs
from referee.device.protocol import Device
from referee.device.provenance import collect, mark_machine
from referee.errors import EnvironmentLacks, OptionError, RefereeError
from referee.records.anatomy import AnatomySurvey, SurveyRow
from referee.units import NS_PER_MS

BUDGET_NS = 20 * NS_PER_MS
"""For one operator; with finding arguments and calibrating it is four times as much."""

_BLOCK_NS = 25_000
"""Short blocks bias the floor by some 3 %, the same for all: good enough to say what an operator is made of."""

_LIMIT_S = 20


def survey(
    device: Device,
    *,
    namespace: str = "aten",
    operators: Sequence[Operator] | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> AnatomySurvey:
    """A coarse ladder for every overload of ``namespace`` that is no ``out=`` variant (or for ``operators``).

    What kills the process is named and left out. Raises :class:`~referee.errors.OptionError` for a namespace without
    operators and :class:`~referee.errors.EnvironmentLacks` without a probe.
    """
    chosen = list(all_operators(namespace) if operators is None else operators)
    if not chosen:
        raise OptionError(f"There is no operator in the namespace {namespace!r}.", hint="Torch's own are in aten.")
    probe = load_probe()
    if isinstance(probe, NoProbe):
        raise EnvironmentLacks(f"A survey needs the compiled probe: {probe.why}.", hint="Install a C++ compiler.")
    before = mark_machine()
    begun_ns = device.now_ns()
    rows = _rows(chosen, probe.module, device, progress)
    return AnatomySurvey(
        namespace=namespace,
        rows=tuple(rows),
        took_ns=device.now_ns() - begun_ns,
        provenance=collect(
            device,
            dtype="as each operator needs",
            shapes=[],
            method={"clock": "settled_amortised", "budget_ns": BUDGET_NS, "block_target_ns": _BLOCK_NS},
            before=before,
        ),
    )


def _rows(
    operators: list[Operator], module: Any, device: Device, progress: Callable[[int, int], None]
) -> list[SurveyRow]:
    rows: list[SurveyRow] = []
    while len(rows) < len(operators):
        first = len(rows)

        def work(report: Report, at: int = first) -> None:
            for operator in operators[at:]:
                report(json.dumps(_row(operator, module, device)).encode())

        child, reports = run_child(work, limit_s=_LIMIT_S)
        for body in reports:
            rows.append(SurveyRow(**json.loads(body)))
            progress(len(rows), len(operators))
        if len(rows) < len(operators):
            lost = operators[len(rows)]
            why = f"took more than {_LIMIT_S} s" if child.too_long else f"ended the process: {_named(child.signal)}"
            rows.append(SurveyRow(op=lost.dotted, kind=kind_of(lost), refused=why))
    return rows


def _named(number: int) -> str:
    return signal.Signals(number).name if number else "it left by itself"


def _row(operator: Operator, module: Any, device: Device) -> dict[str, Any]:
    """In the child: one operator."""
    base = {"op": operator.dotted, "kind": kind_of(operator)}
    try:
        arguments = make_arguments(operator)
        request = Request(operator=operator, wish=Wish(), mode="no_grad")
        prepared = prepare(request, arguments, module)
        ladder = build_ladder(prepared.subject, module)
        pairs = [ladder.whole, *(step.pair for step in ladder.steps)]
        whole, *parts = time_pairs(pairs, device=device, budget_ns=BUDGET_NS, block_ns=_BLOCK_NS, enough=0)
    except RefereeError as error:
        return {**base, "refused": error.message}
    except Exception as error:  # noqa: BLE001 - one operator's failure is its row, not the survey's end
        lines = str(error).strip().splitlines() or [""]
        return {**base, "refused": f"{type(error).__name__}: {lines[0][:200]}"}
    layers: dict[str, float] = {}
    for step, part in zip(ladder.steps, parts, strict=True):
        layers[step.layer] = layers.get(step.layer, 0.0) + part.hot.point
    return {
        **base,
        "entry": prepared.subject.entry.expression,
        "whole_ns": whole.hot.point,
        "remainder_ns": whole.hot.point - sum(part.hot.point for part in parts),
        "layers": layers,
        "stages": len(parts),
    }


_RANDOM = "nondeterministic_seeded"


def kind_of(operator: Operator) -> str:
    """What sort of operator it is, by its schema and tags."""
    kinds = [argument.kind for argument in operator.arguments]
    tensors = [kind for kind in kinds if kind in ("Tensor", "List[Tensor]")]
    if _RANDOM in operator.tags:
        return "random"
    if operator.in_place:
        return "in-place"
    if operator.is_view:
        return "view"
    if not tensors:
        return "factory"
    if "List[Tensor]" in kinds or any("List[Optional[Tensor]]" in kind for kind in kinds):
        return "list"
    if any(word in operator.base for word in ("index", "gather", "scatter", "select", "take", "embedding")):
        return "indexing"
    if "pointwise" in operator.tags:
        return "pointwise"
    if "reduction" in operator.tags or any(a.name in ("dim", "keepdim") for a in operator.arguments):
        return "reduction"
    return "other"
