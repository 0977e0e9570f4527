"""What will hurt in this step, before it does? Inference tensors, graphs that are held, a tape that nobody runs.

Each question calls the step as a user would, and answers with findings that name the variable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from referee.anatomy.held import named_tensors
from referee.anatomy.reached import reached_findings, watch_reached
from referee.anatomy.tape import NO_OUTPUT, OVERWRITTEN, OWN_OUTPUT, count_nodes, read_tape
from referee.device.host import load_torch
from referee.errors import OptionError, RefereeError
from referee.records.anatomy import Tape
from referee.records.finding import Finding
from referee.units import format_bytes

_REPEATS = 4
"""Calls after which a graph that is kept from step to step has visibly grown."""


def find_cautions(
    step: Callable[[], object],
    *,
    tape: Tape,
    runs_backward: bool,
    model: Any = None,
    rebuild: Callable[[], Callable[[], object]] | None = None,
) -> list[Finding]:
    """Everything about ``step`` that fails or costs later; with ``rebuild`` also what a first call makes."""
    findings = [*_inference_tensors(step), *(_lazy_buffers(rebuild) if rebuild is not None else ())]
    with watch_reached(step) as reached:
        findings += [*_held_graphs(step), *_held_by_gradients(step), *_held_by_itself(tape)]
    findings += reached_findings(reached) if runs_backward else _overwritten(tape)
    if not runs_backward and tape.saved_bytes and (tape.why_empty == NO_OUTPUT or _looks_like_inference(model)):
        findings.append(_never_runs(tape, evaluating=_looks_like_inference(model)))
    return findings


@contextmanager
def inference_errors(step: object, name: str) -> Iterator[None]:
    """Name the tensors that were made in inference mode, where the step fails for them."""
    try:
        yield
    except RefereeError as error:
        held = [known for known, tensor in named_tensors(step).items() if tensor.is_inference()]
        if not held or "nference tensor" not in str(error):
            raise
        shown = ", ".join(held[:4]) + (f" and {len(held) - 4} more" if len(held) > 4 else "")
        raise OptionError(
            f"{name} does not run where gradients are wanted: {shown} {'was' if len(held) == 1 else 'were'} made in"
            " inference mode.",
            hint="Build the model outside of inference_mode, or clone these tensors outside of it.",
        ) from error


def _inference_tensors(step: object) -> list[Finding]:
    """Parameters and buffers that were made in inference mode: where that will hurt, before it does."""
    torch = load_torch()
    found: list[Finding] = []
    for name, tensor in named_tensors(step).items():
        if not tensor.is_inference():
            continue
        trained = isinstance(tensor, torch.nn.Parameter) and tensor.requires_grad
        message = (
            f"Parameter {name} was made in inference mode: backward leaves it without a gradient or fails, "
            "and updating it raises"
            if trained
            else f"{name} was made in inference mode: updating it in place or saving it for backward raises outside"
        )
        found.append(
            Finding(
                code="inference-tensor",
                severity="warning",
                message=message,
                evidence={"name": name, "trained": trained},
                hint="Build the model outside of inference_mode, or clone the tensor outside of it.",
            )
        )
    return found


def _lazy_buffers(rebuild: Callable[[], Callable[[], object]]) -> list[Finding]:
    """What a first call makes when it runs in inference mode, and whether a call outside can go on with it."""
    torch = load_torch()
    try:
        step = rebuild()
        before = set(map(_holder, named_tensors(step)))
        already = {name for name, tensor in named_tensors(step).items() if tensor.is_inference()}
        with torch.inference_mode():
            step()
        made = {n: t for n, t in named_tensors(step).items() if t.is_inference() and n not in already}
    except (RuntimeError, TypeError):  # a step that trains does not run in inference mode at all
        return []
    found: list[Finding] = []
    for name in dict.fromkeys(map(_holder, made)):
        when = "made" if name not in before else "replaced"
        fails = _fails_outside(step)
        after = f"; a later call under no_grad fails: {fails}" if fails else "; updating it in place later would fail"
        found.append(
            Finding(
                code="inference-tensor",
                severity="warning" if fails else "info",
                message=f"{name} is {when} by a first call, and is an inference tensor if that runs in inference mode"
                f"{after}",
                evidence={"name": name, "fails": bool(fails)},
                hint="Warm up in the mode that serves.",
            )
        )
    return found


def _fails_outside(step: Callable[[], object]) -> str:
    try:
        with load_torch().no_grad():
            step()
    except RuntimeError as error:
        return str(error).strip().splitlines()[0][:120]
    return ""


def _held_graphs(step: Callable[[], object]) -> list[Finding]:
    """Variables whose graph grows from call to call: they keep the saved tensors of every step alive."""
    step()
    first = _graph_sizes(step)
    for _ in range(_REPEATS):
        step()
    found: list[Finding] = []
    for name, (nodes, held_bytes) in _graph_sizes(step).items():
        earlier = first.get(name, (0, 0))[0]  # of a list: of all that it holds
        grown = nodes - earlier
        if grown < _REPEATS:
            continue
        found.append(
            Finding(
                code="graph-held",
                severity="warning",
                message=f"{name} keeps the graphs of earlier steps: {earlier} nodes became {nodes} in {_REPEATS} calls"
                f" ({format_bytes(held_bytes)} of saved tensors)",
                evidence={"name": name, "nodes": nodes, "nodes_per_call": grown / _REPEATS, "saved_bytes": held_bytes},
                hint="Keep loss.detach() or loss.item(), or update it under torch.no_grad().",
            )
        )
    return found


def _held_by_gradients(step: object) -> Iterator[Finding]:
    """Gradients that carry a graph themselves: parameter and gradient then hold each other."""
    held = [
        n for n, t in named_tensors(step).items() if t.is_leaf and t.grad is not None and t.grad.grad_fn is not None
    ]
    if held:
        yield Finding(
            code="graph-held",
            severity="warning",
            message=f"{len(held)} gradients carry the graph of their backward (create_graph=True), first that of "
            f"{held[0]}: parameter and gradient hold each other, and what the step saved lives on with them",
            evidence={"name": f"{held[0]}.grad", "gradients": len(held)},
            hint="Ask with torch.autograd.grad(…, create_graph=True), or set the gradients to None at the end of the "
            "step.",
        )


def _held_by_itself(tape: Tape) -> Iterator[Finding]:
    """A function's forward that puts its own output on ``ctx``: node and output hold each other."""
    found = [(node.name, saved.name) for node in tape.nodes for saved in node.saved if saved.name.endswith(OWN_OUTPUT)]
    if found:
        function, attribute = found[0][0].removesuffix("Backward"), found[0][1].removesuffix(f", {OWN_OUTPUT}")
        yield Finding(
            code="graph-held",
            severity="warning",
            message=f"{function} keeps its own output as {attribute}: graph and output hold each other, and where no "
            "backward runs they live until Python's garbage collector comes by",
            evidence={"name": attribute, "function": function, "nodes": len(found)},
            hint="Use ctx.save_for_backward for tensors: it also tells of writing in place.",
        )


def _graph_sizes(step: object) -> dict[str, tuple[int, int]]:
    """Nodes and saved bytes by variable; of what a list holds together."""
    sizes: dict[str, tuple[int, int]] = {}
    for name, tensor in named_tensors(step).items():
        if tensor.grad_fn is not None:
            holder = _outermost(name)
            nodes, held_bytes = sizes.get(holder, (0, 0))
            sizes[holder] = (nodes + count_nodes(tensor), held_bytes + read_tape(tensor).saved_bytes)
    return sizes


def _holder(name: str) -> str:
    """The variable that a tensor is an element of: ``losses`` for ``losses[3]``."""
    return re.sub(r"(?<=.)\[\d+\]$", "", name)


def _outermost(name: str) -> str:
    """The list that a tensor lies in somewhere: ``log`` for ``log[3].loss``."""
    return re.sub(r"(?<=.)\[\d+\].*$", "", name)


def _looks_like_inference(model: Any) -> bool:
    """A model in eval mode, or none that says otherwise."""
    return model is not None and not getattr(model, "training", True)


def _overwritten(tape: Tape) -> Iterator[Finding]:
    """What an operator saved for its backward and another one wrote to: a backward raises, and none has run."""
    found = [node.name for node in tape.nodes if any(saved.name.endswith(OVERWRITTEN) for saved in node.saved)]
    if found:
        yield Finding(
            code="saved-overwritten",
            severity="warning",
            message=f"What {found[0]} saved for its backward is written to in place afterwards: backward from what the "
            "step returns raises",
            evidence={"node": found[0], "nodes": len(found)},
            hint="Leave out the underscore of the operator behind it, or write to a clone.",
        )


def _never_runs(tape: Tape, *, evaluating: bool) -> Finding:
    reasons = [tape.why_empty] if tape.why_empty == NO_OUTPUT else []
    reasons += ["eval() switches layers, it does not stop autograd"] if evaluating else []
    return Finding(
        code="backward-never-runs",
        severity="warning",
        message=f"{format_bytes(tape.saved_bytes)} are saved in each call for a backward pass that never runs: "
        + ", and ".join(reasons),
        evidence={"saved_bytes": tape.saved_bytes, "nodes": tape.size},
        hint="Wrap it in torch.no_grad() or torch.inference_mode().",
    )
