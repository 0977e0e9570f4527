"""What is a fix? How it is applied to a freshly built step, when it makes sense, and what it may change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from referee.device.discover import Held, discover
from referee.target import Target

if TYPE_CHECKING:
    from referee.device.observe import Observation
    from referee.device.protocol import Device

Step = Callable[[], object]


@dataclass(frozen=True)
class Loaded:
    """A step that was built for this purpose alone, and what it holds. A fix may change all of it."""

    target: Target
    held: Held

    @classmethod
    def of(cls, target: Target) -> Loaded:
        """With what the target's step is seen to hold; a carried model or optimizer counts as held."""
        held = discover(target.step)
        for carried, place in ((target.model, held.modules), (target.optimizer, held.optimizers)):
            if carried is not None and not any(carried is there for there in place):
                place.insert(0, carried)
        return cls(target, held)

    @property
    def step(self) -> Step:
        """The step as it was built."""
        return self.target.step

    @property
    def roots(self) -> list[Any]:
        """Modules that lie in no other held module."""
        modules = self.held.modules
        return [m for m in modules if not any(o is not m and any(i is m for i in o.modules()) for o in modules)]

    def parameters(self) -> list[Any]:
        """Every parameter, each once, in order."""
        found = {id(p): p for module in self.held.modules for p in module.parameters()}
        for optimizer in self.held.optimizers:
            found.update((id(p), p) for group in optimizer.param_groups for p in group["params"])
        # Leaves that the step holds by themselves are trained as well.
        found.update((id(t), t) for t in self.held.tensors if t.requires_grad and t.is_leaf)
        return list(found.values())


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What is known of the step before a fix is tried."""

    device: Device
    seen: Observation
    loaded: Loaded

    @property
    def device_type(self) -> str:
        """``cpu``, ``cuda``, …"""
        return self.device.name.partition(":")[0]

    @property
    def trains(self) -> bool:
        """The step runs backward (or calls an optimizer)."""
        return bool(self.seen.backward) or bool(self.loaded.held.optimizers)

    @property
    def may_record(self) -> bool:
        """Operators of the step may record a tape: false only where all is seen and nothing wants a gradient."""
        floating = any(spec.dtype.startswith(("float", "bfloat")) for spec in self.seen.outputs)
        wanting = any(parameter.requires_grad for parameter in self.loaded.parameters())
        return self.seen.requires_grad or wanting or not floating or self.seen.basis != "operators"


def always(_: Situation) -> str:
    """Nothing speaks against trying it."""
    return ""


def took_effect(_step: Step, _situation: Situation) -> str:
    """What was applied did take effect."""
    return ""


def leaves_nothing(_loaded: Loaded) -> tuple[str, ...]:
    """What the fixed step holds after a call is as it was."""
    return ()


def finds_nothing(_situation: Situation) -> tuple[str, ...]:
    """There is nothing to be said of what the fix removes."""
    return ()


@dataclass(frozen=True, kw_only=True)
class Fix:
    """One fix.

    ``why_not`` answers an empty text where the fix makes sense, else the reason why it does not. ``apply`` changes
    what it is given and returns the step to be timed; what it raises is the reason why the fix failed.
    ``changes``: provenance keys in which the two sides may then differ. ``precision``: the dtype whose tolerance
    counts, where the fix computes in a lower one. ``strides``: the fix is about strides, so outputs may have others.
    ``items``: how many times as many items one call of the fixed step handles (its outputs are then not comparable).
    ``build``: builds another target in the place of the one that is asked about.
    ``failed``: answers why the fix, although applied, did not take effect; else an empty text.
    ``finds``: what in the step the fix is about, in words, with the lines.
    ``leaves``: what a call of the fixed step has left behind that will fail later, in words.
    ``warms_up``: applying it runs the step, so that buffers which each call changes are no longer as eager's.
    ``reuses_memory``: successive calls return the same memory, by design.
    """

    name: str
    title: str
    how: str
    attacks: str
    apply: Callable[[Loaded, Situation], Step]
    why_not: Callable[[Situation], str] = always
    changes: tuple[str, ...] = ()
    precision: str | None = None
    strides: bool = False
    items: float = 1.0
    reuses_memory: bool = False
    warms_up: bool = False
    build: Callable[[], Target] | None = None
    compiles: bool = False
    failed: Callable[[Step, Situation], str] = took_effect
    finds: Callable[[Situation], tuple[str, ...]] = finds_nothing
    leaves: Callable[[Loaded], tuple[str, ...]] = leaves_nothing
    update_tolerance: float = 0.2
    """By norm, of the change that one step makes to the parameters. Adam turns rounding noise of gradients that are
    zero by mathematics (a key's bias under softmax) into full steps, so that only the bulk can be compared."""
