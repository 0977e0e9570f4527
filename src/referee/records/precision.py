"""Which precision for this step? Autocast audit, gradient ranges, what a scaler would do, timing, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp
from typing import Literal

from referee.records.finding import Finding
from referee.records.provenance import Provenance
from referee.units import format_number

DtypeAnswer = Literal["float32", "tf32", "bfloat16", "float16", "cannot-tell"]
Basis = Literal["run", "cast"]

_SAID_AS_POWER = 1024.0
"""Powers of two from here on are written as such."""


def power_of_two(scale: float) -> str:
    """A loss scale as one says it: small ones as they are, larger ones as ``2^16``."""
    mantissa, exponent = frexp(scale)
    return f"2^{exponent - 1}" if mantissa == 0.5 and not 1 <= scale < _SAID_AS_POWER else format_number(scale)


@dataclass(frozen=True, kw_only=True)
class PrecisionVerdict:
    """Which dtype, a scaler or not, and why. ``lines`` are the three to print: dtype, where not to cast, gain here.

    ``scaler`` is ``None`` where the question does not arise or there is no evidence.
    """

    dtype: DtypeAnswer
    scaler: bool | None
    reasons: tuple[str, ...]
    lines: tuple[str, ...] = ()
    undecided_because: str | None = None


@dataclass(frozen=True, kw_only=True)
class AutocastOp:
    """One kind of operator call in the step: dtypes in and out, how often, what autocast cast for it, and why.

    ``phase`` is ``forward`` or ``backward``; ``why`` is ``lowered``, ``policy`` (autocast keeps it in float32),
    ``promotion`` (mixed arguments were widened), ``explicit`` (the user's own cast), ``inputs`` (it takes what it is
    given), or ``outside`` (not inside an autocast region). ``modules`` are the paths that called it, a few of them.
    """

    op: str
    phase: str
    inputs: tuple[str, ...]
    output: str
    count: int
    casts: int
    why: str
    modules: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    """The Python calls that it belongs to, a few of them."""


@dataclass(frozen=True, kw_only=True)
class CastGroup:
    """Casts of one kind: who asked, from and to, of what; ``repeats`` of them cast again what was cast before.

    ``bytes`` are those read and written. ``of`` is ``weight`` (a leaf that autocast may keep), ``activation`` or
    ``gradient``.
    """

    who: str
    phase: str
    of: str
    source: str
    target: str
    count: int
    repeats: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class DeviceDifference:
    """A call whose result would have another dtype on another device, or would raise there.

    ``derived`` marks what was inferred and not run: rows of the backward, whose dtypes are those that the backward of
    the call's operators begins in.
    """

    call: str
    place: str
    here: str
    there: str
    device: str
    count: int
    derived: bool = False


@dataclass(frozen=True, kw_only=True)
class AutocastAudit:
    """What autocast does to this step in ``dtype``. ``casts`` counts every change of floating dtype that it inserted.

    ``casts_ns`` is the time of those casts and of backward's, timed apart. ``site`` says where the context sits.
    ``elsewhere`` compares with ``elsewhere_device``; ``not_compared`` says why there is nothing there.
    """

    dtype: str
    site: str
    ops: tuple[AutocastOp, ...]
    casts: int
    cast_groups: tuple[CastGroup, ...]
    casts_bytes: int
    casts_ns: float | None
    weight_casts_kept: int
    """How often a weight was used that autocast had cast before in the same context."""
    elsewhere: tuple[DeviceDifference, ...] = ()
    elsewhere_device: str = ""
    not_compared: str = ""
    elsewhere_casts: tuple[CastGroup, ...] = ()
    """The casts there; those of backward are derived from the forward pass, not run."""
    not_derived: str = ""
    """Why the backward there is not derived, or not wholly."""


@dataclass(frozen=True, kw_only=True)
class ScalePoint:
    """What a loss scale of 2^``exponent`` does to the gradients, as shares of the elements.

    ``zero_frac_cast``, ``subnormal_frac`` and ``overflow_frac_cast`` come from casting the float32 gradients; the
    others from a real fp16 backward at that scale: ``None`` where none was run. ``zero_frac`` counts
    elements that are nonzero in the float32 backward and zero in the fp16 one.
    """

    exponent: int
    zero_frac_cast: float
    subnormal_frac: float
    overflow_frac_cast: float
    zero_frac: float | None = None
    overflow_frac: float | None = None


@dataclass(frozen=True, kw_only=True)
class ParameterRange:
    """The gradient of one parameter: elements, exact zeros in float32, and what fp16 loses at scale 1."""

    name: str
    elements: int
    zeros_frac: float
    zero_frac: float | None
    zero_frac_cast: float
    subnormal_frac: float
    overflow_frac: float
    largest: float | None
    """``None`` where an element is infinite or no number."""
    lost_updates_bf16_frac: float | None = None


@dataclass(frozen=True, kw_only=True)
class Binade:
    """How many gradient elements have 2^``exponent`` ≤ |g| < 2^(``exponent`` + 1)."""

    exponent: int
    count: int


@dataclass(frozen=True, kw_only=True)
class GradientRange:
    """The gradients against fp16's range. Shares at scale 1; ``scale_low`` and ``scale_high`` bound the loss scales.

    ``zero_frac`` is that of a real fp16 backward (``basis`` run), ``None`` where none ran. Between ``scale_low`` and
    ``scale_high`` (powers of two) at most ``loss_frac`` of the elements vanish and none overflows; ``None`` where no
    such scale was found.
    """

    basis: Basis
    elements: int
    zeros_frac: float
    zero_frac: float | None
    zero_frac_cast: float
    subnormal_frac: float
    overflow_frac: float
    scale_low: float | None
    scale_high: float | None
    loss_frac: float
    zero_frac_bf16: float | None
    """Elements that vanish in a real bf16 backward at scale 1."""
    lost_updates_bf16_frac: float | None
    """Updates of the optimizer that would leave weights kept in bf16 as they are."""
    scales: tuple[ScalePoint, ...]
    parameters: tuple[ParameterRange, ...]
    binades: tuple[Binade, ...]
    why_not: str = ""
    layers: tuple[ParameterRange, ...] = ()
    """The parameters of each module taken together, in order."""
    window_note: str = ""
    """Why the edges of the window may lie further out than ``scale_low`` and ``scale_high``, if they may."""

    @property
    def window_words(self) -> str:
        """The window of good loss scales, as ``2^8 to 2^17``; one that is a single scale is said to be that alone."""
        if self.scale_low is None or self.scale_high is None:
            return "none found"
        low, high = power_of_two(self.scale_low), power_of_two(self.scale_high)
        return f"{low} to {high}" if low != high else f"{low} alone"


@dataclass(frozen=True, kw_only=True)
class ActivationRange:
    """The largest magnitude that one module's output reached, as a share of the largest float16 number, 65,504."""

    module: str
    largest: float | None
    """``None`` where it was infinite or no number."""
    headroom: float | None
    """65,504 over the largest magnitude: below 1 it overflows. ``None`` where every output was zero."""

    @property
    def overflows(self) -> bool:
        """Whether fp16 does not hold it."""
        return self.headroom is not None and self.headroom < 1


@dataclass(frozen=True, kw_only=True)
class ScalerForecast:
    """What ``GradScaler`` with its defaults would do on these gradients, repeated for ``steps`` steps."""

    steps: int
    init_scale: float
    skips: int
    first_skips: int
    """Steps skipped before the first one that is taken."""
    steady_low: float
    steady_high: float
    """Between these the scale moves once it is steady."""
    collapsed_at: int | None
    changes: tuple[tuple[int, float], ...]
    """Step and scale wherever the scale changed."""
    rising: bool = False
    """Whether the scale grew to the end of the simulated steps and was never turned back: not steady yet."""
    overflows_at: int | None = None
    """Of a rising scale: the step at which it would overflow for the first time."""
    waits_per_step: int | None = None
    """Values that the scaler reads back from the device in each step: each is a wait there."""


@dataclass(frozen=True, kw_only=True)
class PrecisionTiming:
    """One precision of the same step, timed beside float32, with its error against float64 on the same inputs.

    ``ratio`` is its time over float32's (below 1: faster). Errors are norms of the difference over the norm of the
    float64 value; for gradients over all parameters together, and the worst single parameter. ``casts_ns`` is what the
    casts alone cost, ``kernel_gain_ns`` what the rest gained.
    """

    name: str
    median_ns: float | None
    ratio: float | None
    ci_low: float | None
    ci_high: float | None
    answer: str
    casts_ns: float | None
    kernel_gain_ns: float | None
    loss_error: float | None
    output_error: float | None
    gradient_error: float | None
    worst_gradient_error: float | None = None
    worst_parameter: str = ""
    why_not: str = ""


@dataclass(frozen=True, kw_only=True)
class PaysFrom:
    """From which batch size a precision is faster than float32; ``points`` are batch size, ratio, low and high."""

    name: str
    batch_size: int | None
    points: tuple[tuple[int, float | None, float | None, float | None], ...]
    why_not: str = ""


@dataclass(frozen=True, kw_only=True)
class PrecisionReport:
    """The precision advisor's answer (schema ``referee.precision/1``)."""

    name: str
    verdict: PrecisionVerdict
    autocast: AutocastAudit | None
    gradients: GradientRange | None
    activations: tuple[ActivationRange, ...]
    scaler: ScalerForecast | None
    timing: tuple[PrecisionTiming, ...]
    pays_from: tuple[PaysFrom, ...]
    provenance: Provenance
    findings: tuple[Finding, ...] = ()
    schema: str = "referee.precision/1"
