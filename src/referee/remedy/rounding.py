"""How far apart are two results, and is it rounding? Errors by norm and by element; a fix's against eager's own.

Two float32 results of a step that amplifies rounding (a norm of values far from zero, a gradient that is zero by
mathematics) differ by more than any tolerance that fits other steps. The step in float64 tells the cases apart: where
eager is as far from it as the fix is, the fix computes the same thing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from referee.device.host import load_torch

AS_FAR = 2.0
"""The fix may be this many times as far from float64 as eager is. Two results that err independently by the same
amount differ by about 1.4 times that; what errs by more than twice as much as eager has lost a digit (a binary one)
that eager has."""
STILL_ROUNDING = 1000.0
"""Eager's own error is taken for rounding up to this many times the tolerance: beyond it a float32 result is worse than
bfloat16's is allowed to be, and the step in float64 may well have taken another branch."""


ZERO_FRAC = 1e-9
"""A gradient that is this small a part of all gradients' root mean square in float64 is zero by mathematics: a
convolution's bias before a batch norm. Float32 leaves some 2**29 times as much of it as float64 does."""


@dataclass(frozen=True, kw_only=True)
class Against:
    """The float64 values of one kind, by number.

    ``scale``: the root mean square of all of them; ``floor``: that below which one is compared on that scale (0 where
    the tensors of this kind have nothing to do with one another).
    """

    exact: Mapping[int, Any]
    scale: float
    floor: float

    def judge(self, key: int, eager: Any, fixed: Any, *, tolerance: float, element_factor: float) -> tuple[bool, str]:
        """Whether ``fixed`` is as near float64 as eager is, and the figures in words.

        The error by norm must be within the tolerance, or at most :data:`AS_FAR` times eager's; that of the worst
        element likewise, with ``element_factor`` times the tolerance. What is zero by mathematics has no relative
        error, and how much noise eager leaves of it is no measure (one order of summing leaves several times as much
        as another): it is held to the tolerance on the scale of all tensors of the kind.
        """
        exact = self.exact.get(key)
        if exact is None or exact.shape != eager.shape:
            return False, "float64 has no such value"
        size = rms([exact])
        is_zero = self.floor > 0 and size <= ZERO_FRAC * self.scale
        scale = self.scale if is_zero else self.floor
        own, found = (distance(exact, side, floor=scale) for side in (eager, fixed))
        figures = f"from float64 the fix is {found[0]:.2g} away, eager {own[0]:.2g}"
        if is_zero:
            figures = f"of all gradients' size float64 leaves {size / self.scale:.2g}, the fix {found[0]:.2g}, "
            figures += f"eager {own[0]:.2g}"
        if not own[0] <= STILL_ROUNDING * tolerance:
            return False, f"{figures}, too far to be rounding"
        allowed = (tolerance, element_factor * tolerance)
        factor = 0.0 if is_zero else AS_FAR
        fits = [error <= max(most, factor * mine) for error, most, mine in zip(found, allowed, own, strict=True)]
        if all(fits):
            nearer = "the fix is nearer" if found[0] < own[0] else "both are about as far"
            return True, f"{figures}: {'zero by mathematics' if is_zero else nearer}, so it is rounding"
        if not fits[1]:
            figures += f" (one element {found[1]:.2g}, eager's worst {own[1]:.2g})"
        return False, f"{figures}: more than rounding"


def is_inexact(tensor: Any) -> bool:
    """Whether it holds rounded numbers."""
    return bool(tensor.is_floating_point() or tensor.is_complex())


def rms(values: Sequence[Any]) -> float:
    """The root mean square of all elements together; 0 for none, and where it is not finite."""
    count = sum(value.numel() for value in values)
    total = sum(float(value.abs().double().square().sum()) for value in values)
    return math.sqrt(total / count) if count and math.isfinite(total) else 0.0


def distance(a: Any, b: Any, *, floor: float) -> tuple[float, float]:
    """Relative error by norm, and of the worst element on the scale of its size plus the root mean square.

    Where both sides are not finite alike they agree; NaN where only ``b`` is not.
    """
    torch = load_torch()
    wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    a, b = a.to(wide), b.to(device=a.device, dtype=wide)
    finite = torch.isfinite(a)
    if not torch.equal(finite, torch.isfinite(b)):
        return math.nan, math.nan
    if not torch.equal(a[~finite].nan_to_num().real, b[~finite].nan_to_num().real):
        return math.nan, math.nan
    a, b = a[finite], b[finite]
    if not a.numel():
        return 0.0, 0.0
    difference = (a - b).abs()
    scale = max(float(a.abs().square().mean().sqrt()), floor)
    if scale == 0.0:
        return (0.0, 0.0) if not bool(difference.any()) else (math.inf, math.inf)
    by_norm = float(difference.square().mean().sqrt()) / scale
    return by_norm, float((difference / (a.abs() + scale)).max())
