"""How near do the activations come to fp16's end? The largest magnitude that each module returns, in float32."""

from __future__ import annotations

from math import inf, isfinite
from typing import Any

from referee.device.host import load_torch
from referee.device.settle import find_leaves
from referee.precision.control import FLOAT32, Control, Ends
from referee.precision.formats import FLOAT16
from referee.precision.subject import Subject, restored
from referee.records.precision import ActivationRange


def measure_activations(subject: Subject) -> tuple[ActivationRange, ...]:
    """Run one forward in float32 and note the largest output of every module that has no parts, largest first."""
    torch = load_torch()
    largest: dict[str, Any] = {}

    def note(module: Any, args: Any, output: Any) -> None:
        name = subject.module_names.get(id(module), type(module).__name__)
        for tensor in find_leaves(output, torch.Tensor):
            if tensor.is_floating_point() and tensor.numel():
                # Kept on its device: reading it back here would wait for the device at every module.
                here = tensor.detach().abs().amax().float()
                before = largest.get(name)
                largest[name] = here if before is None else torch.maximum(before, here)

    leaves = [module for root in subject.modules for module in root.modules() if not any(module.children())]
    handles = [module.register_forward_hook(note) for module in dict.fromkeys(leaves)]
    control = Control(
        FLOAT32, device_type=subject.device_type, own_sites=subject.own_sites, ends=Ends(before_backward=True)
    )
    try:
        with restored(subject):
            control.call(subject.step)
    finally:
        for handle in handles:
            handle.remove()
    found = [(name, float(value)) for name, value in largest.items()]
    # What is no number comes first: nothing holds it.
    ordered = sorted(found, key=lambda item: -item[1] if isfinite(item[1]) else -inf)
    return tuple(_range_of(name, value) for name, value in ordered)


def _range_of(name: str, value: float) -> ActivationRange:
    if not isfinite(value):
        return ActivationRange(module=name, largest=None, headroom=0.0)
    return ActivationRange(module=name, largest=value, headroom=FLOAT16.largest / value if value else None)
