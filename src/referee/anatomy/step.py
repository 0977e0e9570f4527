"""What does a whole step leave for backward, and what do the grad modes cost and save? Tape, modes, and what will hurt.

The step is called as it is, once in each mode for its tape and memory, and timed by the measuring engine. A step that
runs backward itself is looked at just before it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from referee.anatomy.cautions import find_cautions
from referee.anatomy.held import named_tensors
from referee.anatomy.modes import MODES, look, mode_compiles, mode_cost
from referee.bench.plan import ProgressCallback, no_progress
from referee.device.host import load_torch
from referee.device.observe import Observation, observe
from referee.device.protocol import Device
from referee.device.provenance import Source, collect, mark_machine
from referee.records.anatomy import Anatomy
from referee.units import NS_PER_S

BUDGET_NS = 3 * NS_PER_S


def dissect_step(
    step: Callable[[], object],
    *,
    device: Device,
    name: str = "step",
    model: Any = None,
    rebuild: Callable[[], Callable[[], object]] | None = None,
    target: Source | None = None,
    seen: Observation | None = None,
    budget_ns: int = BUDGET_NS,
    progress: ProgressCallback = no_progress,
) -> Anatomy:
    """The tape of ``step``, its grad modes side by side, and findings about what autograd does with it.

    ``rebuild`` makes the step anew: with it, buffers that a first call makes are looked at, made in inference mode and
    used outside. What the step raises in grad mode passes through; in the other modes it is their answer.
    """
    before = mark_machine()
    observation = observe(step, device) if seen is None else seen
    glance = look(step, parameters=_parameters(step, model))
    tape = glance.tape
    findings = find_cautions(step, tape=tape, runs_backward=glance.ran_backward, model=model, rebuild=rebuild)
    modes = tuple(
        mode_cost(step, mode, device=device, budget_ns=budget_ns // len(MODES), seen=observation, progress=progress)
        for mode in MODES
    )
    findings += mode_compiles(modes)
    findings += [finding for finding in observation.findings if finding.code in ("switch-set", "watched")]
    whole = modes[0]
    return Anatomy(
        op=name,
        entry="step()",
        mode="grad",
        whole_ns=whole.ns,
        whole_cold_ns=None,
        whole_ci_low_ns=whole.ci_low_ns,
        whole_ci_high_ns=whole.ci_high_ns,
        ci_level=0.95,
        stages=(),
        remainder_ns=None,
        remainder_low_ns=None,
        remainder_high_ns=None,
        per_tensor_ns=None,
        dispatch_path=(),
        tape=tape,
        provenance=collect(
            device,
            dtype=observation.dtype,
            shapes=observation.shapes,
            method={**observation.method, "clock": "settled_amortised", "budget_ns": budget_ns},
            target=target,
            before=before,
            switches=observation.switches,
        ),
        unseparated=("the stages of a step: they are those of its operators, one by one (referee anatomy OP)",),
        modes=modes,
        findings=tuple(findings),
    )


def _parameters(step: object, model: Any) -> list[Any]:
    torch = load_torch()
    found = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
    return found + [t for t in named_tensors(step).values() if isinstance(t, torch.nn.Parameter)]
