"""Which one is faster? A comparison as a document: the answer and its ratio first, then the sides and the ratios."""

from __future__ import annotations

import math

from referee.records.compare import Comparison, Pair, Side
from referee.records.document import (
    Block,
    Column,
    Curve,
    Document,
    Fact,
    Facts,
    Heading,
    Headline,
    Plot,
    Table,
    Tone,
)
from referee.records.finding import fatal
from referee.report.findings import alarm_blocks, finding_blocks
from referee.report.measurement import thinned
from referee.report.provenance import difference_blocks, provenance_blocks
from referee.report.wording import ONE_PAIR, context_lines, precise_ratio, ratio_range, sentence
from referee.units import format_count, format_frac, format_ns, format_number

_TONES: dict[str, Tone] = {"faster": "good", "slower": "bad", "same": "plain", "cannot-tell": "warn"}


def compose_comparison(comparison: Comparison) -> Document:
    """The comparison as a document."""
    return Document(
        title=comparison.name,
        blocks=(
            comparison_headline(comparison),
            *alarm_blocks(comparison.findings),
            *_pairs(comparison),
            *_sides(comparison),
            *(block for pair in comparison.pairs for block in _ratios(pair, comparison)),
            *difference_blocks((pair.name, difference) for pair in comparison.pairs for difference in pair.differences),
            *finding_blocks(comparison.findings),
            *provenance_blocks(comparison.provenance),
        ),
    )


def comparison_headline(comparison: Comparison) -> Headline:
    """The answer on the second candidate against the first, with its ratio, its interval and this run's own floor."""
    where = f"{comparison.processes} processes a side" if comparison.processes else "one process"
    what = "median calls" if _by_medians(comparison) else "paired blocks"
    method = f"interleaved A B B A, {what}, {where}; stopped: {comparison.stop_reason}"
    return Headline(
        figure=_figure(comparison),
        sentence=_sentence(comparison),
        context=(*context_lines(comparison.provenance), method),
        tone="bad" if fatal(comparison.findings) else _TONES[comparison.answer],
    )


def _by_medians(comparison: Comparison) -> bool:
    """Whether the answer stands on the medians of all calls, because those of a side differ by themselves."""
    return any(finding.code == "varying-calls" for finding in comparison.findings)


def _figure(comparison: Comparison) -> str:
    if comparison.answer == "cannot-tell" or comparison.ratio is None:
        return "Cannot tell"
    return f"{comparison.answer.capitalize()}: {precise_ratio(comparison.ratio)}× the time"


def _sentence(comparison: Comparison) -> str:
    """Without an answer the reason comes first; with one, the ratio."""
    why = [sentence(comparison.why)] if comparison.why else []
    ratio = []
    if comparison.ratio is not None:
        a, b = comparison.sides[0].name, comparison.sides[1].name
        level = format_frac(comparison.ci_level, digits=0)
        pairs = comparison.pairs[0].clean_quads if comparison.pairs else None
        interval = ratio_range(comparison.ci_low, comparison.ci_high, pairs=pairs) or "not known"
        words = interval if interval == ONE_PAIR else f"{level} interval {interval}"
        ratio = [f"B is {b}, A is {a}: time B / time A is {precise_ratio(comparison.ratio)}, {words}."]
    aa = ratio_range(comparison.aa_ratio_low, comparison.aa_ratio_high)
    floor = f"A against itself read {aa} in this run." if aa else ""
    if not aa and any(pair.quads for pair in comparison.pairs):
        floor = "A was not read against itself in this run."
    parts = why + ratio if comparison.answer == "cannot-tell" else ratio + why
    return " ".join(part for part in (*parts, floor) if part)


def _pairs(comparison: Comparison) -> tuple[Block, ...]:
    """Every further candidate against the first, where there are several."""
    if len(comparison.pairs) < 2:
        return ()
    rows = tuple(
        (
            pair.name,
            pair.answer,
            precise_ratio(pair.ratio),
            ratio_range(pair.ci_low, pair.ci_high, pairs=pair.clean_quads) or "–",
            f"{pair.clean_quads:,} of {pair.quads:,}",
            pair.why or "–",
        )
        for pair in comparison.pairs
    )
    columns = (
        Column(title="Against the first", fit="shorten"),
        Column(title="Answer"),
        Column(title="Ratio", align="right"),
        Column(title="Interval", align="right"),
        Column(title="Quads", align="right", priority=3),
        Column(title="Why", fit="wrap", priority=2),
    )
    return Heading(text="Each against the first"), Table(columns=columns, rows=rows)


def _sides(comparison: Comparison) -> tuple[Block, ...]:
    columns = (
        Column(title="Side", fit="shorten"),
        Column(title="Median", align="right"),
        Column(title="Floor", align="right", priority=2),
        Column(title="Blocks", align="right"),
        Column(title="Clean", align="right", priority=2),
        Column(title="Calls a block", align="right", priority=3),
        Column(title="First call", align="right", priority=3),
    )
    rows = tuple(_side(side, letter) for letter, side in zip(_letters(comparison), comparison.sides, strict=True))
    caption = (
        "The answer stands on the ratio of these medians: the calls of a side differ by themselves."
        if _by_medians(comparison)
        else "For orientation: the answer stands on the paired ratios, not on these."
    )
    return Heading(text="The sides"), Table(columns=columns, rows=rows, caption=caption)


def _letters(comparison: Comparison) -> list[str]:
    return [chr(ord("A") + k) if k < 26 else f"{k + 1}" for k in range(len(comparison.sides))]


def _side(side: Side, letter: str) -> tuple[str, ...]:
    return (
        f"{letter}  {side.name}",
        format_ns(side.median_ns),
        format_ns(side.floor_ns),
        format_count(side.blocks),
        format_count(side.clean_blocks),
        format_count(side.calls_per_block),
        "–" if side.warmup is None else format_ns(side.warmup.first_call_ns),
    )


def _ratios(pair: Pair, comparison: Comparison) -> tuple[Block, ...]:
    """The paired ratios in the order taken, and what they are worth; nothing where none was taken."""
    if not pair.quads:
        return ()
    facts = (
        Fact(
            label="Ratio",
            value=precise_ratio(pair.ratio),
            note=ratio_range(pair.ci_low, pair.ci_high, pairs=pair.clean_quads) or "no interval",
        ),
        Fact(
            label="Quads",
            value=f"{pair.clean_quads:,} undisturbed of {pair.quads:,}",
            note=f"worth {format_number(pair.n_eff)} independent ones",
        ),
        Fact(label="Smallest difference called", value=format_frac(pair.floor_frac, digits=2)),
        Fact(
            label="A against A",
            value=precise_ratio(comparison.aa_ratio),
            note=ratio_range(comparison.aa_ratio_low, comparison.aa_ratio_high) or "not read",
        ),
    )
    points = [(float(k), ratio) for k, ratio in enumerate(pair.ratios, 1) if math.isfinite(ratio) and ratio > 0]
    heading = Heading(text=f"{pair.name} against {comparison.sides[0].name}")
    if len(points) < 3:
        return heading, Facts(facts=facts)
    shown = thinned(points)
    curves = [
        Curve(label="ratio of a quad", xs=tuple(x for x, _ in shown), ys=tuple(y for _, y in shown), style="points"),
        Curve(label="no difference", xs=(1.0, float(len(pair.ratios))), ys=(1.0, 1.0), style="dashed"),
    ]
    plot = Plot(
        curves=tuple(curves),
        x_label="quad, in the order taken",
        y_label="time B / time A",
        y_unit="",
        log_x=False,
        log_y=False,
        height="short",
    )
    return heading, Facts(facts=facts), plot
