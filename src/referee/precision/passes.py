"""What do forward and backward give in one precision? A step run once, ended before its weights change, and read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from referee.device.host import load_torch
from referee.device.settle import find_leaves
from referee.precision.control import Control, Ends, Setting
from referee.precision.subject import Subject, restored

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One run: what backward was called on, what the model returned, and the gradients by parameter.

    Gradients are as the last backward leaves them: still multiplied by the setting's loss scale, not clipped yet.
    """

    setting: Setting
    losses: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]
    gradients: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def trained(self) -> bool:
        """Whether a backward ran that left gradients."""
        return bool(self.gradients)


def run_pass(subject: Subject, setting: Setting) -> Pass:
    """Run the step once in ``setting``, from the present weights, and put everything back.

    Where the step returns a loss without calling backward, backward is called here. What the step raises passes
    through.
    """
    with restored(subject):
        for parameter in subject.parameters():
            parameter.grad = None
        return read_pass(subject, setting)


def read_pass(
    subject: Subject, setting: Setting, *, around: Callable[[Callable[[], object]], object] | None = None
) -> Pass:
    """Run the step as it stands, in ``setting``; the caller restores. ``around`` may run it inside something."""
    losses: list[torch.Tensor] = []
    gradients: dict[str, torch.Tensor] = {}
    outputs: list[torch.Tensor] = []

    def note(tensors: tuple[torch.Tensor, ...]) -> None:
        losses.extend(tensor.detach() for tensor in tensors)

    def note_gradients() -> None:
        # Before the step goes on: it may clip them, and would clip what our scale made of them.
        for parameter in subject.parameters():
            if parameter.grad is not None:
                gradients[subject.name_of(parameter)] = parameter.grad.detach().clone()

    control = Control(
        setting,
        device_type=subject.device_type,
        own_sites=subject.own_sites,
        ends=Ends(before_update=True),
        on_loss=note,
        on_gradients=note_gradients,
    )
    handle = _watch_outputs(subject, outputs)
    try:
        control.call(subject.step if around is None else lambda: around(subject.step))
    finally:
        if handle is not None:
            handle.remove()
    return Pass(setting=setting, losses=tuple(losses), outputs=tuple(outputs), gradients=_dense(gradients))


def _watch_outputs(subject: Subject, outputs: list[Any]) -> Any:
    if subject.model is None:
        return None
    torch = load_torch()

    def note(module: Any, args: Any, output: Any) -> None:
        outputs.extend(t.detach() for t in find_leaves(output, torch.Tensor) if t.is_floating_point())

    return subject.model.register_forward_hook(note)


def _dense(gradients: dict[str, Any]) -> dict[str, Any]:
    """Sparse gradients as the values they hold, complex ones as their real and imaginary parts."""
    torch = load_torch()
    dense = {name: g.coalesce().values() if g.is_sparse else g for name, g in gradients.items()}
    return {name: torch.view_as_real(g.resolve_conj()) if g.is_complex() else g for name, g in dense.items()}
