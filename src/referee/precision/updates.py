"""Which updates would weights kept in fewer bits lose, and which optimizer settings vanish there?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from referee.device.host import load_torch
from referee.precision.control import Control, Setting
from referee.precision.formats import BFLOAT16, lost_updates
from referee.precision.gradients import to_numpy
from referee.precision.subject import Subject, restored
from referee.records.finding import Finding


def count_lost_updates(subject: Subject) -> dict[str, int] | None:
    """Run one whole step in float32 and count, by parameter, the updates that weights rounded to bf16 would not feel.

    The update is what the step changed in the float32 weights; it is lost where adding it to the weight rounded to
    bf16 gives that weight again. Of weights that are kept in bf16 or fp16 as they are, those are counted whose gradient
    is not zero and which the step left as they were. ``None`` where the step updates no weight. Everything is put back.
    """
    torch = load_torch()
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    with restored(subject):
        before = [(p, p.detach().clone()) for p in subject.parameters()]
        felt: dict[int, Any] = {}

        def note(optimizer: Any, args: Any, kwargs: Any) -> None:
            for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                if parameter.grad is not None and parameter.dtype in (torch.bfloat16, torch.float16):
                    felt[id(parameter)] = parameter.grad != 0

        handle = register_optimizer_step_pre_hook(note)
        control = Control(Setting(name="float32"), device_type=subject.device_type, own_sites=subject.own_sites)
        try:
            control.call(subject.step)
        finally:
            handle.remove()
        lost, changed = {}, False
        for parameter, old in before:
            if id(parameter) in felt:
                changed = True
                same = (parameter.detach() == old) & felt[id(parameter)]
                lost[subject.name_of(parameter)] = int(torch.count_nonzero(same))
                continue
            if parameter.dtype != torch.float32:
                continue
            update = parameter.detach().double() - old.double()
            changed = changed or bool(update.any())
            lost[subject.name_of(parameter)] = lost_updates(to_numpy(old.bfloat16()), to_numpy(update), BFLOAT16)
        return lost if changed else None


def check_epsilon(subject: Subject) -> Iterator[Finding]:
    """Does an optimizer's epsilon round to zero in the dtype of the parameters it updates?"""
    torch = load_torch()
    for optimizer in subject.optimizers:
        for group in optimizer.param_groups:
            epsilon = group.get("eps")
            halves = [p for p in group["params"] if p.dtype == torch.float16]
            if isinstance(epsilon, float) and epsilon > 0 and halves and float(np.float16(epsilon)) == 0:
                yield _vanishing(optimizer, epsilon, halves, subject)


def _vanishing(optimizer: Any, epsilon: float, halves: list[Any], subject: Subject) -> Finding:
    kind = type(optimizer).__name__
    return Finding(
        code="epsilon-vanishes",
        severity="fatal",
        message=f"{kind}'s eps={epsilon:g} is 0 in float16: parameters whose gradient is zero become NaN at the first "
        "update.",
        evidence={"eps": epsilon, "parameters": len(halves), "first": subject.name_of(halves[0])},
        hint="Keep the weights in float32 (autocast casts them), or give eps=1e-4.",
    )
