"""What does fp16 do to these gradients? Counts at every loss scale, from a real fp16 backward and from the cast.

Both, because they differ: a cast of the float32 gradients says what the last rounding loses, a real backward also what
the activations' gradients lost on their way down. Zeros that float32 has too are no underflow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isfinite
from typing import Any

import numpy as np

from referee.device.host import load_torch
from referee.precision.control import BF16, FLOAT32, FP16
from referee.precision.errors import first_sentence
from referee.precision.formats import FLOAT16, Floats, Magnitudes
from referee.precision.passes import Pass, run_pass
from referee.precision.subject import Subject
from referee.records.precision import Binade, GradientRange, ParameterRange, ScalePoint

LOSS_FRAC = 0.001
"""A scale is good enough if fewer than this share of the elements vanish: a thousandth, far below the noise between
batches; the tool's own choice."""

CAST_EXPONENTS = tuple(range(41))
"""Loss scales shown for the cast: 2^0 to 2^40, beyond which any gradient above 1e-8 overflows."""

RUN_EXPONENTS = (0, 4, 8, 12, 16, 20, 24)
"""Loss scales at which an fp16 backward is run."""


_STRIDE, _LEAST_EXPONENT = 4, -16
"""Further scales are tried in these steps, down to 2^-16: below it nothing that fp16 holds would be left."""


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """The gradients of one float32 backward: the pass itself, magnitudes by parameter, and all together."""

    reference: Pass
    by_parameter: dict[str, Magnitudes]
    together: Magnitudes


def measure_gradients(subject: Subject) -> Gradients:
    """Run a float32 forward and backward and count the magnitudes of its gradients."""
    reference = run_pass(subject, FLOAT32)
    by_parameter = {}
    together = Magnitudes()
    for name, gradient in reference.gradients.items():
        magnitudes = Magnitudes()
        magnitudes.add(to_numpy(gradient))
        by_parameter[name] = magnitudes
        together.merge(magnitudes)
    return Gradients(reference=reference, by_parameter=by_parameter, together=together)


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What a real backward lost against the float32 one, in elements, by parameter."""

    vanished: dict[str, int]
    overflowed: dict[str, int]
    elements: int

    @property
    def zero_frac(self) -> float:
        """Share of the elements that are zero here and not in float32."""
        return sum(self.vanished.values()) / self.elements if self.elements else 0.0

    @property
    def overflow_frac(self) -> float:
        """Share of the elements that are not finite here and are in float32."""
        return sum(self.overflowed.values()) / self.elements if self.elements else 0.0


def compare_passes(reference: Pass, other: Pass) -> Loss:
    """Count, parameter by parameter, what ``other`` lost against ``reference``."""
    torch = load_torch()
    vanished, overflowed, elements = {}, {}, 0
    for name, exact in reference.gradients.items():
        got = other.gradients.get(name)
        elements += exact.numel()
        if got is None or got.shape != exact.shape:
            continue
        vanished[name] = int(torch.count_nonzero((exact != 0) & (got == 0)))
        overflowed[name] = int(torch.count_nonzero(torch.isfinite(exact) & ~torch.isfinite(got)))
    return Loss(vanished=vanished, overflowed=overflowed, elements=elements)


def report_gradients(
    subject: Subject,
    gradients: Gradients,
    *,
    loss_frac: float = LOSS_FRAC,
    exponents: Sequence[int] = RUN_EXPONENTS,
    lost_updates: dict[str, int] | None = None,
    go_on: Callable[[], bool] = lambda: True,
) -> GradientRange:
    """The range report: shares at scale 1, at each power of two, and the window of good scales.

    ``exponents`` are the loss scales at which a real fp16 backward runs, more being added to find the window's edges;
    ``go_on`` says, before each but the first, whether there is time. ``lost_updates`` are counts by parameter.
    """
    losses, why_not, cut = _real_losses(subject, gradients.reference, exponents, loss_frac=loss_frac, go_on=go_on)
    elements = gradients.together.elements
    scales = tuple(
        _scale_point(gradients.together, exponent, losses) for exponent in sorted({*CAST_EXPONENTS, *losses})
    )
    at_one = next(point for point in scales if point.exponent == 0)
    low, high = _window(scales, loss_frac=loss_frac, run=bool(losses))
    parameters = tuple(
        _parameter(name, magnitudes, losses.get(0), gradients.reference, lost_updates)
        for name, magnitudes in gradients.by_parameter.items()
    )
    return GradientRange(
        basis="run" if losses else "cast",
        elements=elements,
        zeros_frac=gradients.together.zeros / elements if elements else 0.0,
        zero_frac=at_one.zero_frac,
        zero_frac_cast=at_one.zero_frac_cast,
        subnormal_frac=at_one.subnormal_frac,
        overflow_frac=at_one.overflow_frac if at_one.overflow_frac is not None else at_one.overflow_frac_cast,
        scale_low=low,
        scale_high=high,
        loss_frac=loss_frac,
        zero_frac_bf16=_bf16_loss(subject, gradients.reference),
        lost_updates_bf16_frac=_lost_frac(lost_updates, elements),
        scales=scales,
        parameters=parameters,
        layers=layers(parameters),
        binades=tuple(Binade(exponent=e, count=count) for e, count in gradients.together.binades()),
        why_not=why_not,
        window_note=_window_note(len(losses)) if cut else "",
    )


def _window_note(tried: int) -> str:
    scales = "scale 1 was" if tried == 1 else f"{tried} scales were"
    return f"only {scales} tried in the time there was, so its edges may lie further out"


def _bf16_loss(subject: Subject, reference: Pass) -> float | None:
    """The share that vanishes in a real bf16 backward; ``None`` where none runs here."""
    try:
        return compare_passes(reference, run_pass(subject, BF16)).zero_frac
    except Exception:  # noqa: BLE001 - a missing bf16 kernel, or the user's own code; the timing row says why
        return None


def _real_losses(
    subject: Subject,
    reference: Pass,
    exponents: Sequence[int],
    *,
    loss_frac: float,
    go_on: Callable[[], bool],
) -> tuple[dict[int, Loss], str, bool]:
    """Backwards at ``exponents``, then halving the gaps where the window begins and ends.

    Beside them the reason why there are none or not all, and whether there was no time for more.
    """
    losses: dict[int, Loss] = {}
    few = _few_vanish(loss_frac)
    try:
        for exponent in exponents:
            if losses and not go_on():
                return losses, "", True
            losses[exponent] = _at(subject, reference, exponent)
        while go_on() and (further := _beyond(losses)) is not None:
            losses[further] = _at(subject, reference, further)
        for good in (few, _none_overflows):
            while go_on() and (middle := _between(losses, good)) is not None:
                losses[middle] = _at(subject, reference, middle)
    except Exception as error:  # noqa: BLE001 - a missing fp16 kernel, or the user's own code
        return losses, f"no fp16 backward here: {first_sentence(error)}", False
    cut = _beyond(losses) is not None or any(_between(losses, good) is not None for good in (few, _none_overflows))
    return losses, "", cut


def _beyond(losses: dict[int, Loss]) -> int | None:
    """An exponent beyond those tried, where an edge of the window must lie there; ``None`` where both are inside."""
    low, high = min(losses), max(losses)
    if not _none_overflows(losses[low]) and low > _LEAST_EXPONENT:
        return low - _STRIDE
    if _none_overflows(losses[high]) and high < CAST_EXPONENTS[-1]:
        return high + _STRIDE
    return None


def _at(subject: Subject, reference: Pass, exponent: int) -> Loss:
    return compare_passes(reference, run_pass(subject, replace(FP16, scale=2.0**exponent)))


def _few_vanish(loss_frac: float) -> Callable[[Loss], bool]:
    return lambda loss: loss.zero_frac <= loss_frac


def _none_overflows(loss: Loss) -> bool:
    return loss.overflow_frac == 0


def _between(losses: dict[int, Loss], good: Callable[[Loss], bool]) -> int | None:
    """An exponent halfway between two neighbours of which one is good and one is not; ``None`` where they touch."""
    known = sorted(losses)
    for low, high in pairwise(known):
        if high - low > 1 and good(losses[low]) != good(losses[high]):
            return (low + high) // 2
    return None


def _scale_point(together: Magnitudes, exponent: int, losses: dict[int, Loss]) -> ScalePoint:
    cast = together.cast(FLOAT16, exponent=exponent)
    elements = max(1, together.elements)
    real = losses.get(exponent)
    return ScalePoint(
        exponent=exponent,
        zero_frac_cast=cast.zeros / elements,
        subnormal_frac=cast.subnormals / elements,
        overflow_frac_cast=cast.overflows / elements,
        zero_frac=None if real is None else real.zero_frac,
        overflow_frac=None if real is None else real.overflow_frac,
    )


def _window(scales: Sequence[ScalePoint], *, loss_frac: float, run: bool) -> tuple[float | None, float | None]:
    """The lowest and highest power of two at which little vanishes and nothing overflows, by the better basis.

    Of several stretches of tried scales that are good throughout, the longest.
    """
    stretches: list[list[int]] = [[]]
    for point in scales:
        zero, overflow = (
            (point.zero_frac, point.overflow_frac) if run else (point.zero_frac_cast, point.overflow_frac_cast)
        )
        if zero is None or overflow is None:
            continue
        if zero <= loss_frac and overflow == 0:
            stretches[-1].append(point.exponent)
        elif stretches[-1]:
            stretches.append([])
    good = max(stretches, key=lambda stretch: stretch[-1] - stretch[0] if stretch else -1)
    return (2.0 ** good[0], 2.0 ** good[-1]) if good else (None, None)


def _parameter(
    name: str, magnitudes: Magnitudes, real: Loss | None, reference: Pass, lost_updates: dict[str, int] | None
) -> ParameterRange:
    cast = magnitudes.cast(FLOAT16)
    elements = max(1, magnitudes.elements)
    gradient = reference.gradients[name]
    lost = None if lost_updates is None else lost_updates.get(name)
    return ParameterRange(
        name=name,
        elements=magnitudes.elements,
        zeros_frac=magnitudes.zeros / elements,
        zero_frac=None if real is None else real.vanished.get(name, 0) / elements,
        zero_frac_cast=cast.zeros / elements,
        subnormal_frac=cast.subnormals / elements,
        overflow_frac=(cast.overflows if real is None else real.overflowed.get(name, 0)) / elements,
        largest=_largest(gradient),
        lost_updates_bf16_frac=None if lost is None else lost / elements,
    )


def _largest(gradient: Any) -> float | None:
    value = float(gradient.abs().max()) if gradient.numel() else 0.0
    return value if isfinite(value) else None


def layers(parameters: Sequence[ParameterRange]) -> tuple[ParameterRange, ...]:
    """The parameters of each module taken together, by the part of the name before the last dot."""
    grouped: dict[str, list[ParameterRange]] = {}
    for parameter in parameters:
        grouped.setdefault(parameter.name.rpartition(".")[0] or parameter.name, []).append(parameter)
    return tuple(_together(name, members) for name, members in grouped.items())


def _together(name: str, members: Sequence[ParameterRange]) -> ParameterRange:
    elements = sum(member.elements for member in members)

    def share(of: Callable[[ParameterRange], float | None]) -> float | None:
        parts = [(value, member.elements) for member in members if (value := of(member)) is not None]
        # Of those members alone that have the share: what is not known of the others is not zero.
        return sum(value * count for value, count in parts) / max(1, sum(c for _, c in parts)) if parts else None

    return ParameterRange(
        name=name,
        elements=elements,
        zeros_frac=share(lambda m: m.zeros_frac) or 0.0,
        zero_frac=share(lambda m: m.zero_frac),
        zero_frac_cast=share(lambda m: m.zero_frac_cast) or 0.0,
        subnormal_frac=share(lambda m: m.subnormal_frac) or 0.0,
        overflow_frac=share(lambda m: m.overflow_frac) or 0.0,
        largest=None if any(m.largest is None for m in members) else max(m.largest or 0.0 for m in members),
        lost_updates_bf16_frac=share(lambda m: m.lost_updates_bf16_frac),
    )


def _lost_frac(lost: dict[str, int] | None, elements: int) -> float | None:
    return None if lost is None or not elements else sum(lost.values()) / elements


def to_numpy(tensor: Any) -> Floats:
    """The tensor's elements as NumPy floats, exactly (bfloat16, which NumPy lacks, as float32)."""
    torch = load_torch()
    tensor = tensor.detach()
    if tensor.is_complex():  # both parts are numbers that a lower precision would hold
        tensor = torch.view_as_real(tensor.resolve_conj())
    if tensor.dtype not in (torch.float16, torch.float32, torch.float64):
        tensor = tensor.float()
    values: Floats = np.asarray(tensor.cpu().numpy())
    return values
