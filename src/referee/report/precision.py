"""Which precision for this step? The advisor's answer as a document: three lines, then what they stand on."""

from __future__ import annotations

from referee.records.document import (
    Block,
    Column,
    Curve,
    Document,
    Entries,
    Entry,
    Fact,
    Facts,
    Heading,
    Headline,
    Plot,
    Table,
    Tone,
)
from referee.records.precision import (
    GradientRange,
    PaysFrom,
    PrecisionReport,
    PrecisionTiming,
    PrecisionVerdict,
    ScalerForecast,
    power_of_two,
)
from referee.report.autocast import autocast_blocks
from referee.report.findings import alarm_blocks, finding_blocks
from referee.report.provenance import provenance_blocks
from referee.report.wording import context_lines, precise_ratio, ratio_range, sentence
from referee.units import format_count, format_frac, format_ns, format_number

_MOST_PARAMETERS = 12
_FIGURES = {
    "float32": "Stay in float32",
    "tf32": "TF32",
    "bfloat16": "bf16 autocast, no scaler",
    "float16": "fp16 autocast with a GradScaler",
    "cannot-tell": "Cannot tell",
}
_TONES: dict[str, Tone] = {"float32": "plain", "cannot-tell": "warn"}

# fp16's landmarks as exponents of two: half of the smallest subnormal, the smallest normal, the end.
_VANISH, _NORMAL, _END = -25, -14, 16


def compose_precision(report: PrecisionReport) -> Document:
    """The report as a document."""
    return Document(
        title=f"Precision of {report.name}",
        blocks=(
            precision_headline(report),
            *alarm_blocks(report.findings),
            *_reasons(report.verdict),
            *_timing(report.timing),
            *_pays(report.pays_from),
            *(_ranges(report.gradients) if report.gradients else ()),
            *(_scaler(report.scaler) if report.scaler else ()),
            *_activations(report),
            *(autocast_blocks(report.autocast) if report.autocast else ()),
            *finding_blocks(report.findings),
            *provenance_blocks(report.provenance),
        ),
    )


def precision_headline(report: PrecisionReport) -> Headline:
    """The verdict in its three lines."""
    verdict = report.verdict
    first, *rest = verdict.lines or ("",)
    return Headline(
        figure=_figure(verdict),
        sentence=first,
        context=(*rest, *context_lines(report.provenance)),
        tone=_TONES.get(verdict.dtype, "good"),
    )


def _figure(verdict: PrecisionVerdict) -> str:
    return "fp16 autocast" if verdict.dtype == "float16" and not verdict.scaler else _FIGURES[verdict.dtype]


def _reasons(verdict: PrecisionVerdict) -> tuple[Block, ...]:
    if not verdict.reasons:
        return ()
    entries = tuple(Entry(title=sentence(reason)) for reason in verdict.reasons)
    return Heading(text="Why"), Entries(entries=entries, numbered=False)


def _timing(rows: tuple[PrecisionTiming, ...]) -> tuple[Block, ...]:
    if not rows:
        return ()
    columns = (
        Column(title="Precision"),
        Column(title="Step", align="right", priority=2),
        Column(title="Ratio", align="right"),
        Column(title="Interval", align="right", priority=3),
        Column(title="Answer", priority=2),
        Column(title="Casts", align="right", priority=5),
        Column(title="Rest gains", align="right", priority=5),
        Column(title="Output error", align="right", priority=4),
        Column(title="Gradient error", align="right", priority=3),
    )
    cells = tuple(
        (
            row.name,
            format_ns(row.median_ns),
            precise_ratio(row.ratio) if row.ratio is not None else "–",
            ratio_range(row.ci_low, row.ci_high) or "–",
            row.answer,
            format_ns(row.casts_ns) if row.casts_ns is not None else "–",
            format_ns(row.kernel_gain_ns) if row.kernel_gain_ns is not None else "–",
            _error(row.output_error),
            _error(row.gradient_error),
        )
        for row in rows
    )
    names: dict[str, list[str]] = {}
    for row in rows:
        if row.why_not:
            names.setdefault(row.why_not, []).append(row.name)
    why = " ".join(f"{', '.join(named)}: {reason}." for reason, named in names.items())
    caption = (
        "Ratio: time over float32's. Errors: norm of the difference from float64 on the same inputs, over the norm. "
        "fp16 training runs with a GradScaler."
    )
    return (
        Heading(text="Side by side"),
        Table(columns=columns, rows=cells, caption=f"{caption} {why}".strip()),
    )


def _error(value: float | None) -> str:
    return "–" if value is None else f"{value:.1e}"


def _pays(rows: tuple[PaysFrom, ...]) -> tuple[Block, ...]:
    if not rows:
        return ()
    facts = []
    for row in rows:
        value = f"batch size {row.batch_size}" if row.batch_size is not None else "not found"
        points = ", ".join(f"{size}: {precise_ratio(ratio)}" for size, ratio, _, _ in row.points)
        times = f"time over float32's by batch size: {points}" if points else ""
        note = "; ".join(words for words in (times, row.why_not) if words)
        facts.append(Fact(label=f"{row.name} pays from", value=value, note=note))
    return Heading(text="From which batch size"), Facts(facts=tuple(facts))


def _ranges(ranges: GradientRange) -> tuple[Block, ...]:
    lost = ranges.lost_updates_bf16_frac
    facts = [
        Fact(
            label="Elements",
            value=format_count(ranges.elements),
            note=f"{format_frac(ranges.zeros_frac)} zero in float32",
        ),
        Fact(
            label="Vanish in fp16 at scale 1",
            value=format_frac(ranges.zero_frac, digits=3) if ranges.zero_frac is not None else "no fp16 backward here",
            note=f"the cast alone: {format_frac(ranges.zero_frac_cast, digits=3)}",
        ),
        Fact(label="Subnormal in fp16", value=format_frac(ranges.subnormal_frac, digits=3), note="lose bits"),
        Fact(label="Overflow in fp16", value=format_frac(ranges.overflow_frac, digits=3)),
        Fact(
            label="Good loss scales",
            value=ranges.window_words,
            note=f"lose at most {format_frac(ranges.loss_frac)}"
            + (f"; {ranges.window_note}" if ranges.window_note else ""),
        ),
        Fact(label="Vanish in bf16", value=format_frac(ranges.zero_frac_bf16, digits=3)),
        Fact(
            label="Updates lost by bf16 weights",
            value=format_frac(lost) if lost is not None else "no update seen",
            note="below half an ulp of the weight: keep the weights in float32",
        ),
    ]
    return (
        Heading(text="Gradients against fp16's range"),
        Facts(facts=tuple(facts)),
        *((plot,) if (plot := magnitude_plot(ranges)) else ()),
        *_scales(ranges),
        _parameters(ranges),
    )


def magnitude_plot(ranges: GradientRange) -> Plot | None:
    """The gradients by binade, with the ranges of the formats drawn as lines below them; ``None`` where all are 0."""
    if not ranges.binades:
        return None
    total = max(1, ranges.elements)
    shares = [(float(b.exponent), 100 * b.count / total) for b in ranges.binades if b.count]
    least = min(share for _, share in shares)
    left = min(shares[0][0], float(_VANISH)) - 2
    right = max(shares[-1][0], float(_END)) + 2
    # The bars of the ranges lie below the smallest share, a factor of three apart.
    fp16, bf16 = least / 3, least / 9
    curves = (
        Curve(label="gradients", xs=tuple(x for x, _ in shares), ys=tuple(y for _, y in shares)),
        Curve(label="fp16 normal", xs=(float(_NORMAL), float(_END)), ys=(fp16, fp16)),
        Curve(label="fp16 subnormal", xs=(float(_VANISH), float(_NORMAL)), ys=(fp16, fp16), style="dashed"),
        Curve(label="bf16, and further on both sides", xs=(left, right), ys=(bf16, bf16)),
    )
    return Plot(
        curves=curves,
        x_label="exponent of the gradient: 2^x",
        y_label="share of the elements in percent",
        y_unit="%",
        log_x=False,
        log_y=True,
        caption="bf16's range goes on in both directions, from 2^-133 to 2^128.",
    )


def _scales(ranges: GradientRange) -> tuple[Block, ...]:
    run = [point for point in ranges.scales if point.zero_frac is not None] or list(ranges.scales[::4])
    columns = (
        Column(title="Loss scale"),
        Column(title="Vanish (run)", align="right"),
        Column(title="Vanish (cast)", align="right", priority=3),
        Column(title="Subnormal", align="right", priority=4),
        Column(title="Overflow (run)", align="right", priority=2),
        Column(title="Overflow (cast)", align="right", priority=4),
    )
    rows = tuple(
        (
            f"2^{point.exponent}",
            format_frac(point.zero_frac, digits=3) if point.zero_frac is not None else "–",
            format_frac(point.zero_frac_cast, digits=3),
            format_frac(point.subnormal_frac, digits=3),
            format_frac(point.overflow_frac, digits=3) if point.overflow_frac is not None else "–",
            format_frac(point.overflow_frac_cast, digits=3),
        )
        for point in run
    )
    caption = "run: a real fp16 backward; cast: the float32 gradients cast. Shares of all elements."
    return Heading(text="At each loss scale", level=3), Table(columns=columns, rows=rows, caption=caption)


def _parameters(ranges: GradientRange) -> Table:
    worst = sorted(ranges.parameters, key=lambda p: (-(p.zero_frac or 0.0), -p.zero_frac_cast, -p.subnormal_frac))
    columns = (
        Column(title="Parameter", fit="shorten"),
        Column(title="Vanish (run)", align="right"),
        Column(title="Vanish (cast)", align="right", priority=2),
        Column(title="Subnormal", align="right", priority=3),
        Column(title="Largest", align="right", priority=3),
        Column(title="bf16 updates lost", align="right", priority=4),
    )
    rows = tuple(
        (
            p.name,
            format_frac(p.zero_frac) if p.zero_frac is not None else "–",
            format_frac(p.zero_frac_cast),
            format_frac(p.subnormal_frac),
            _magnitude(p.largest, digits=2),
            format_frac(p.lost_updates_bf16_frac) if p.lost_updates_bf16_frac is not None else "–",
        )
        for p in worst[:_MOST_PARAMETERS]
    )
    left = len(worst) - len(rows)
    return Table(columns=columns, rows=rows, caption=f"The worst first; {left} more in the JSON." if left else "")


def _magnitude(value: float | None, *, digits: int) -> str:
    return "not finite" if value is None else f"{value:.{digits}g}"


def _scaler(found: ScalerForecast) -> tuple[Block, ...]:
    facts = [
        Fact(label="Starts at", value=power_of_two(found.init_scale)),
        Fact(label="Skips at once", value=format_count(found.first_skips)),
        Fact(label=f"Skips in {found.steps:,} steps", value=format_count(found.skips)),
        _where_it_settles(found),
    ]
    if found.waits_per_step is not None:
        facts.append(
            Fact(
                label="Waits for the device",
                value=f"{found.waits_per_step} a step",
                note="it reads back whether anything overflowed: expected, no fault",
            )
        )
    if found.collapsed_at is not None:
        facts.append(Fact(label="Falls to 0", value=f"after step {found.collapsed_at:,}", note="then NaN", tone="bad"))
    return Heading(text="What GradScaler would do"), Facts(facts=tuple(facts))


def _where_it_settles(found: ScalerForecast) -> Fact:
    if found.rising:
        end = power_of_two(found.steady_high)
        then = "" if found.overflows_at is None else f", and first overflows at step {found.overflows_at:,}"
        return Fact(label=f"Scale after {found.steps:,} steps", value=end, note=f"rising still, not steady{then}")
    return Fact(
        label="Steady scale",
        value=f"{power_of_two(found.steady_low)} to {power_of_two(found.steady_high)}",
        note="the upper one is tried and skipped, if the gradients stay as they are",
    )


def _activations(report: PrecisionReport) -> tuple[Block, ...]:
    if not report.activations:
        return ()
    columns = (
        Column(title="Module", fit="shorten"),
        Column(title="Largest", align="right"),
        Column(title="65,504 over it", align="right", priority=2),
    )
    rows = tuple(
        (
            row.module,
            _magnitude(row.largest, digits=4),
            f"{format_number(row.headroom)}×" if row.headroom is not None else "–",
        )
        for row in report.activations[:6]
    )
    return Heading(text="Activations against fp16's end"), Table(columns=columns, rows=rows)
