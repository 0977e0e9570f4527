"""How is one and the same step computed in another precision? Autocast, loss scale and scaler put around it from here.

A step is the user's own code: it may enter autocast itself or not, call ``backward`` itself, use a ``GradScaler``.
:class:`Control` takes these over while it is entered: autocast is what it says (at the step's own sites where there
are some, else from the start of the step until its ``backward``, and again after it), the loss is scaled, the user's
scaler passes everything through, and the step may be ended where an optimizer would change the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from referee.device.host import load_torch
from referee.device.settle import find_leaves

if TYPE_CHECKING:
    import torch

LossCallback = Callable[["tuple[torch.Tensor, ...]"], None]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A precision to compute a step in.

    ``autocast`` is the name of the dtype that autocast uses (``None``: off). ``scale`` multiplies the loss before
    backward. ``tf32`` allows TF32 in float32 matrix products (``None``: as the session has it).
    """

    name: str
    autocast: str | None = None
    scale: float = 1.0
    tf32: bool | None = None


FLOAT32 = Setting(name="float32", tf32=False)
TF32 = Setting(name="tf32", tf32=True)
BF16 = Setting(name="bfloat16", autocast="bfloat16")
FP16 = Setting(name="float16", autocast="float16")


class UpdateReached(BaseException):
    """Raised inside a step where its optimizer would change the weights; never leaves :meth:`Control.call`.

    Not an ``Exception``, so that a step that handles its own errors does not handle this one.
    """


class BackwardReached(BaseException):
    """Raised inside a step where its backward would begin; never leaves :meth:`Control.call`."""


@dataclass(frozen=True, kw_only=True)
class Ends:
    """Where a step is ended early."""

    before_backward: bool = False
    before_update: bool = False


class Control:
    """Takes over the precision of whatever runs while it is entered. Entering costs some microseconds."""

    def __init__(
        self,
        setting: Setting,
        *,
        device_type: str,
        own_sites: bool,
        ends: Ends = Ends(),  # frozen
        on_loss: LossCallback | None = None,
        on_gradients: Callable[[], None] | None = None,
        scaler: Any = None,
    ) -> None:
        self._torch = load_torch()
        self._setting = setting
        self._device_type = device_type
        self._own_sites = own_sites
        self._ends = ends
        self._on_loss = on_loss
        self._on_gradients = on_gradients
        self._scaler = scaler
        self._dtype = None if setting.autocast is None else getattr(self._torch, setting.autocast)
        self._around: Any = None
        self._undo: list[Callable[[], None]] = []
        self._in_backward = False
        self.backwards = 0
        """How often the step called backward since this control was entered."""

    def call(self, step: Callable[[], object]) -> object:
        """Call ``step`` under this control; ``None`` where it was ended early.

        Where the step calls no backward but returns a loss with a graph, backward is called on that.
        """
        with self:
            try:
                output = step()
                if not self.backwards:
                    loss = returned_loss(output)
                    if loss is not None:
                        self._torch.autograd.backward(loss)
            except (UpdateReached, BackwardReached):
                return None
            return output

    def __enter__(self) -> Control:
        self.backwards = 0
        self._replace_backward()
        self._replace_scalers()
        self._replace_autocast()
        self._hook_optimizers()
        if self._setting.tf32 is not None and self._device_type == "cuda":
            self._allow_tf32(self._setting.tf32)
        if not self._own_sites:
            self._enter_autocast()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave_autocast()
        while self._undo:
            self._undo.pop()()

    # Autocast around the forward pass -------------------------------------------------------------------------------

    def _enter_autocast(self) -> None:
        if self._dtype is not None and self._around is None:
            self._around = self._torch.autocast(self._device_type, dtype=self._dtype)
            self._around.__enter__()

    def _leave_autocast(self) -> None:
        if self._around is not None:
            self._around.__exit__(None, None, None)
            self._around = None

    # What is replaced -----------------------------------------------------------------------------------------------

    def _replace_backward(self) -> None:
        module = self._torch.autograd
        plain = module.backward

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            if self._in_backward:
                # The same call once more, through a mode, or one that backward makes itself (a checkpoint): what comes
                # down to it carries the scale already.
                plain(tensors, *args, **kwargs)
                return
            self.backwards += 1
            losses = (tensors,) if isinstance(tensors, self._torch.Tensor) else tuple(tensors)
            if self._on_loss is not None:
                self._on_loss(losses)
            if self._ends.before_backward:
                raise BackwardReached
            within = self._around is not None
            self._leave_autocast()
            self._in_backward = True
            try:
                plain(tuple(self._scaled(loss) for loss in losses), *args, **kwargs)
            finally:
                self._in_backward = False
            if self._on_gradients is not None:
                self._on_gradients()
            if within:
                self._enter_autocast()

        module.backward = backward
        self._undo.append(lambda: setattr(module, "backward", plain))

    def _scaled(self, loss: Any) -> Any:
        """The loss times the scale, in float32 at least, as ``GradScaler`` forms the product."""
        if self._scaler is not None:
            return self._scaler.scale(loss)
        if self._setting.scale == 1:
            return loss
        return loss * self._torch.full((), self._setting.scale, dtype=self._torch.float32, device=loss.device)

    def _replace_scalers(self) -> None:
        """Every ``GradScaler`` but ours behaves as a disabled one."""
        scalers = self._torch.amp.GradScaler
        if "_enabled" in vars(scalers):  # controls nest: the outer one has done it
            return

        def read(scaler: Any) -> bool:
            return bool(vars(scaler).get("_referee_own", False))

        def write(scaler: Any, value: bool) -> None:
            vars(scaler)["_enabled"] = value

        scalers._enabled = property(read, write)
        self._undo.append(lambda: delattr(scalers, "_enabled"))

    def _replace_autocast(self) -> None:
        """At the step's own sites, autocast is what the setting says; regions that switch it off stay off."""
        if not self._own_sites:
            return
        contexts = self._torch.autocast
        plain = contexts.__enter__

        def enter(context: Any) -> Any:
            if context.device != self._device_type or not context._enabled:
                return plain(context)
            dtype = context.fast_dtype
            if self._dtype is None:
                context._enabled = False
            else:
                context.fast_dtype = self._dtype
            try:
                return plain(context)
            finally:
                context._enabled, context.fast_dtype = True, dtype

        contexts.__enter__ = enter
        self._undo.append(lambda: setattr(contexts, "__enter__", plain))

    def _hook_optimizers(self) -> None:
        if not (self._ends.before_update or self._scaler is not None or self._dtype is not None):
            return

        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            if self._ends.before_update:
                raise UpdateReached
            self._leave_autocast()
            if self._scaler is not None:
                unscale(self._scaler, optimizer)

        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        handles = [register_optimizer_step_pre_hook(before)]
        if self._scaler is not None:
            handles.append(register_optimizer_step_post_hook(lambda *_: self._scaler.update()))
        self._undo += [handle.remove for handle in handles]

    def _allow_tf32(self, allow: bool) -> None:
        precision = self._torch.get_float32_matmul_precision()
        convolutions = self._torch.backends.cudnn.allow_tf32
        self._torch.set_float32_matmul_precision("high" if allow else "highest")
        self._torch.backends.cudnn.allow_tf32 = allow
        self._undo.append(lambda: self._torch.set_float32_matmul_precision(precision))
        self._undo.append(lambda: setattr(self._torch.backends.cudnn, "allow_tf32", convolutions))


def returned_loss(output: object) -> Any:
    """The first scalar in ``output`` that backward could be called on; ``None`` where there is none."""
    torch = load_torch()
    for tensor in find_leaves(output, torch.Tensor):
        if tensor.numel() == 1 and tensor.is_floating_point() and tensor.grad_fn is not None:
            return tensor
    return None


def own_scaler(device_type: str, **options: Any) -> Any:
    """A ``GradScaler`` of ours, which stays in force under a :class:`Control`."""
    scaler = load_torch().amp.GradScaler(device_type, **options)
    vars(scaler)["_referee_own"] = True
    return scaler


def unscale(scaler: Any, optimizer: Any) -> None:
    """What ``scaler.step`` does before the optimizer's step: unscale, look for infinities, and drop such gradients.

    Without gradients the optimizer leaves its parameters as they are, which is what a skipped step is.
    """
    scaler.unscale_(optimizer)
    found = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
    if sum(flag.item() for flag in found.values()):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None


@contextmanager
def autocast_state(device_type: str, dtype: Any) -> Iterator[None]:
    """Autocast on for ``device_type`` with ``dtype``, even where ``torch.autocast`` refuses (CUDA without a GPU)."""
    torch = load_torch()
    enabled, before = torch.is_autocast_enabled(device_type), torch.get_autocast_dtype(device_type)
    torch.set_autocast_enabled(device_type, True)
    torch.set_autocast_dtype(device_type, dtype)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_enabled(device_type, enabled)
        torch.set_autocast_dtype(device_type, before)
