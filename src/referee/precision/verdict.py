"""Which dtype, a scaler or not, where not to cast, and what is gained here? Three lines, each from a figure."""

from __future__ import annotations

from collections.abc import Sequence

from referee.precision.gradients import LOSS_FRAC
from referee.precision.trust import why_wrong
from referee.records.precision import (
    ActivationRange,
    AutocastAudit,
    DtypeAnswer,
    GradientRange,
    PrecisionTiming,
    PrecisionVerdict,
)
from referee.units import format_frac, format_ns, format_number

DOES_NOT_RUN = "does not run"
"""The answer of a row whose precision raised."""

_ANSWERS = {"faster": "faster", "slower": "slower", "same": "as fast"}

HOPELESS_RATIO = 3.0
"""A precision that takes this many times as long at the step's own batch size is not tried at others, nor hoped for
where it was not answered: no noise of a few calls is that large."""

_FP16_WINS_BELOW = 0.9
"""fp16 is advised where it takes less than this share of the time of the best that has float32's range."""

_NAMES: dict[str, str] = {"float32": "float32", "tf32": "TF32", "bfloat16": "bf16 autocast", "float16": "fp16 autocast"}


def judge(
    *,
    timing: Sequence[PrecisionTiming],
    gradients: GradientRange | None,
    activations: Sequence[ActivationRange],
    autocast: AutocastAudit | None,
    kept: str = "",
) -> PrecisionVerdict:
    """The verdict. A precision wins only where it is measurably faster; of several, the fastest, fp16 with a handicap.

    bf16 and TF32 need no scaler and no watching, so fp16 has to be faster than either by more than a tenth to be
    advised: the tool's own weighing. None is advised whose gradient or output is further from the exact one than zeros.
    ``kept`` names the dtypes other than float32 that weights are kept in: then there is no float32 to hold the others
    against.
    """
    faster = {row.name: row for row in timing if row.answer == "faster" and row.ratio is not None}
    dtype = "cannot-tell" if kept else _choose(faster, timing, activations, gradients)
    why = f"the weights are kept in {kept}, so no float32 was measured" if kept else _undecided(timing)
    # Autocast leaves float64 alone: its gradients were held against no range of fp16's.
    reached = None if kept == "float64" else gradients
    scaler = _scaler(dtype, gradients)
    reasons = (*_timing_reasons(timing), *_range_reasons(gradients, activations))
    return PrecisionVerdict(
        dtype=dtype,
        scaler=scaler,
        reasons=reasons,
        lines=(
            _line_dtype(dtype, scaler, reached, timing, why),
            _line_places(autocast, dtype),
            _line_gain(dtype, timing),
        ),
        undecided_because=why if dtype == "cannot-tell" else None,
    )


def _choose(
    faster: dict[str, PrecisionTiming],
    timing: Sequence[PrecisionTiming],
    activations: Sequence[ActivationRange],
    gradients: GradientRange | None,
) -> DtypeAnswer:
    others = [row for row in timing if row.name != "float32"]
    if others and all(row.answer == DOES_NOT_RUN for row in others):
        return "float32"
    if not any(row.answer in ("faster", "slower", "same") for row in others):
        return "cannot-tell"
    overflowing = any(row.overflows for row in activations)
    low = {name: row.ratio or 1.0 for name, row in faster.items() if not why_wrong(row)}
    if overflowing or (gradients is not None and _no_scale_is_good(gradients)):
        low.pop("float16", None)
    if not low:
        hoped = any(_may_be_faster(row) and not why_wrong(row) for row in others)
        return "cannot-tell" if hoped else "float32"
    half = low.pop("float16", None)
    best = min(low, key=lambda name: low[name], default=None)
    if half is not None and (best is None or half < _FP16_WINS_BELOW * low[best]):
        return "float16"
    return "tf32" if best == "tf32" else "bfloat16"


def _may_be_faster(row: PrecisionTiming) -> bool:
    """Whether an undecided row leaves room for being faster: its interval, or a ratio far above 1, says otherwise."""
    if row.answer != "cannot-tell":
        return False
    if row.ci_low is None:
        return row.ratio is None or row.ratio < HOPELESS_RATIO
    return row.ci_low < 1


def _scaler(dtype: DtypeAnswer, gradients: GradientRange | None) -> bool | None:
    """fp16 training is never advised without a scaler: gradients change as training goes on, and it costs little."""
    return None if dtype == "cannot-tell" else dtype == "float16" and gradients is not None


def _line_dtype(
    dtype: DtypeAnswer,
    scaler: bool | None,
    gradients: GradientRange | None,
    timing: Sequence[PrecisionTiming],
    why: str,
) -> str:
    if dtype == "cannot-tell":
        return f"dtype: cannot tell, because {why}.{_by_range(gradients)}"
    words = _NAMES[dtype]
    if dtype == "float16" and gradients is None:
        return f"dtype: {words}; a scaler only matters to training, and nothing is trained here."
    if dtype == "float16":
        return f"dtype: {words}, with a GradScaler{_window_words(gradients)}."
    none_runs = all(row.answer == DOES_NOT_RUN for row in timing if row.name != "float32")
    because = {
        "float32": "no lower precision runs here" if none_runs else _why_float32(timing),
        "tf32": "it is the fastest here and keeps float32's range",
        "bfloat16": "it has float32's range",
    }[dtype]
    vanishing = ""
    if gradients is not None and gradients.zero_frac is not None:
        lost = format_frac(gradients.zero_frac, digits=3)
        vanishing = f" In fp16 {lost} of the gradient would vanish at scale 1{_window_words(gradients)}."
        if _no_scale_is_good(gradients):
            over = format_frac(gradients.overflow_frac, digits=3)
            goes = (
                f"{over} of the gradient overflows" if gradients.overflow_frac else f"{lost} of the gradient vanishes"
            )
            vanishing = f" In fp16 {goes} at scale 1, and no loss scale that was tried is good."
    elif gradients is not None and gradients.scale_low is not None:
        lost = format_frac(gradients.zero_frac_cast, digits=3)
        window = _window_words(gradients)
        vanishing = f" Cast to fp16, {lost} of the gradient would vanish at scale 1{window}; none was run."
    return f"dtype: {words}, no scaler: {because}.{vanishing}"


def _why_float32(timing: Sequence[PrecisionTiming]) -> str:
    wrong = [f"{row.name} is, but {why_wrong(row)}" for row in timing if row.answer == "faster" and why_wrong(row)]
    if wrong:
        return f"no lower precision that can be used is faster here ({'; '.join(wrong)})"
    return "no lower precision is faster here"


def _by_range(gradients: GradientRange | None) -> str:
    """What the ranges alone say, where the times say nothing."""
    if gradients is None or gradients.zero_frac is None:
        return " If a lower precision is wanted, bf16 needs no scaler."
    lost = format_frac(gradients.zero_frac, digits=3)
    if _no_scale_is_good(gradients):
        return " By range alone: bf16 without a scaler; in fp16 no loss scale that was tried is good."
    return (
        f" By range alone: bf16 without a scaler, or fp16 with one{_window_words(gradients)}; without, {lost} of the "
        "gradient vanishes."
    )


def _no_scale_is_good(gradients: GradientRange) -> bool:
    """Whether gradients overflow or vanish in fp16 at scale 1 and no scale tried is better: the loss is not why."""
    vanishes = gradients.zero_frac is not None and gradients.zero_frac > gradients.loss_frac
    return gradients.scale_low is None and (gradients.overflow_frac > 0 or vanishes) and not gradients.window_note


def _window_words(gradients: GradientRange | None) -> str:
    if gradients is None or gradients.scale_low is None or gradients.scale_high is None:
        return ""
    note = f"; {gradients.window_note}" if gradients.window_note else ""
    return f" (good loss scales: {gradients.window_words}{note})"


def _line_places(autocast: AutocastAudit | None, dtype: DtypeAnswer) -> str:
    """Where not to cast: what autocast's policy keeps in float32, and what it would have to cast back for."""
    if autocast is None:
        return "do not cast: not known, no autocast region could be recorded."
    keep = _kept_ops(autocast)
    advice = "Wrap forward and loss only; leave the weights in float32."
    if not keep:
        return f"do not cast: autocast keeps no operator of this step in float32 here. {advice}"
    named = ", ".join(keep[:5]) + (f" and {len(keep) - 5} more" if len(keep) > 5 else "")
    stay = "stays" if len(keep) == 1 else "stay"
    return f"do not cast: {named} {stay} in float32 by autocast's policy. {advice}"


def _kept_ops(autocast: AutocastAudit) -> list[str]:
    """The calls that compute in float32 for a reason of their own; conversions themselves apart."""
    kept = [op for op in autocast.ops if op.why in ("policy", "promotion") and "float32" in op.inputs]
    return list(dict.fromkeys(call for op in kept for call in (op.calls or (op.op.removeprefix("aten::"),))))


def _line_gain(dtype: DtypeAnswer, timing: Sequence[PrecisionTiming]) -> str:
    rows = {row.name: row for row in timing}
    base = rows.get("float32")
    others = [row for row in timing if row.name != "float32" and row.ratio is not None]
    shown = "; ".join(f"{row.name} {_ratio_words(row)}" for row in others)
    if not others or base is None:
        return "gain here: not measured."
    chosen = rows.get(dtype)
    gain = ""
    if chosen is not None and chosen.ratio is not None and dtype != "float32":
        saved = (1 - chosen.ratio) * base.median_ns if base.median_ns is not None else None
        gain = f"{format_frac(1 - chosen.ratio)} of the step, {format_ns(saved)}. "
    else:
        gain = "none. " if dtype == "float32" else "not decided. "
    return f"gain here: {gain}Time over float32's: {shown}."


def _ratio_words(row: PrecisionTiming) -> str:
    if row.ci_low is None or row.ci_high is None:
        return f"about {row.ratio:.2g}"
    return f"{row.ratio:.3f} ({row.ci_low:.3f} to {row.ci_high:.3f})"


def _undecided(timing: Sequence[PrecisionTiming]) -> str:
    for row in timing:
        if row.answer == "cannot-tell":
            return row.why_not or "the times could not be told apart"
    return "nothing was timed"


def _timing_reasons(timing: Sequence[PrecisionTiming]) -> tuple[str, ...]:
    found = []
    for row in timing:
        if row.name == "float32":
            continue
        if row.ratio is None:
            found.append(f"{row.name}: not timed ({row.why_not or 'no answer'})")
        elif row.answer == "cannot-tell":
            found.append(f"{row.name}: cannot tell ({row.why_not}); {_ratio_words(row)} of float32's time")
        else:
            found.append(f"the step is {_ANSWERS[row.answer]} in {row.name}: {_ratio_words(row)} of float32's time")
        if row.casts_ns is not None and row.median_ns:
            share = format_frac(row.casts_ns / row.median_ns)
            found.append(f"the casts of {row.name} take {format_ns(row.casts_ns)}, {share} of its step")
    return tuple(found)


def _range_reasons(gradients: GradientRange | None, activations: Sequence[ActivationRange]) -> tuple[str, ...]:
    found = []
    if gradients is not None:
        if gradients.zero_frac is not None:
            found.append(
                f"a real fp16 backward loses {format_frac(gradients.zero_frac, digits=3)} of the gradient elements at "
                f"scale 1, the cast alone {format_frac(gradients.zero_frac_cast, digits=3)}"
            )
        if gradients.scale_low is not None and gradients.scale_high is not None:
            found.append(
                f"good loss scales: {gradients.window_words}, where at most {format_frac(LOSS_FRAC)} vanishes and "
                "nothing overflows"
            )
    if activations:
        top = activations[0]
        size = "infinite or no number" if top.largest is None else format_number(top.largest)
        found.append(f"the largest activation is {size} (module {top.module}); fp16 ends at 65,504")
    return tuple(found)
