"""What is one operator's call made of? The ladder as a document, then the dispatch path and the tape."""

from __future__ import annotations

import math
from dataclasses import dataclass

from referee.records.anatomy import (
    SMALL_NS,
    Anatomy,
    ModeCost,
    Stage,
    Variant,
    bound_ns,
)
from referee.records.document import (
    Bar,
    Bars,
    Block,
    Column,
    Document,
    Fact,
    Facts,
    Heading,
    Headline,
    Paragraph,
    Table,
)
from referee.report.dispatch_path import mode_blocks, path_blocks
from referee.report.findings import alarm_blocks, finding_blocks
from referee.report.provenance import provenance_blocks
from referee.report.tape import tape_blocks
from referee.report.wording import context_lines, sentence
from referee.units import format_bytes, format_frac, format_ns, format_range_ns, format_ratio


def compose_anatomy(anatomy: Anatomy) -> Document:
    """The record as a document."""
    return Document(
        title=f"Anatomy of {anatomy.op}",
        blocks=(
            anatomy_headline(anatomy),
            *alarm_blocks(anatomy.findings),
            *_ladder(anatomy),
            *_variants(anatomy.variants),
            *_modes(anatomy.modes),
            *path_blocks(anatomy.dispatch_path),
            *mode_blocks(anatomy.paths),
            *(tape_blocks(anatomy.tape) if anatomy.tape is not None else ()),
            *finding_blocks(anatomy.findings),
            *provenance_blocks(anatomy.provenance),
        ),
    )


def anatomy_headline(anatomy: Anatomy) -> Headline:
    """The whole, and the layer that takes most of it."""
    context = context_lines(anatomy.provenance)
    if anatomy.whole_ns is None:
        return Headline(
            figure="No headline number", sentence="The call could not be timed.", context=context, tone="bad"
        )
    layers = layer_sums(anatomy.stages)
    largest = max(layers, key=lambda name: layers[name].ns, default="")
    share = layers[largest].ns / anatomy.whole_ns if largest else 0.0
    # Where much of the whole is in no stage, none of them can be called the largest.
    partial = any(finding.code in ("no-probe", "remainder-large") for finding in anatomy.findings)
    named = 0 < share <= 1 and not partial
    first = f"The largest layer is {largest}: {format_frac(share, digits=0)} of it. " if named else ""
    if share > 1:
        first = f"The stages do not add up to it ({largest} alone is longer): this function goes another way. "
    return Headline(
        figure=f"{format_ns(anatomy.whole_ns)} per call",
        sentence=f"{anatomy.entry}, {anatomy.mode}, hot. {first}{_cold_words(anatomy)}".strip(),
        context=context,
    )


def _cold_words(anatomy: Anatomy) -> str:
    if anatomy.whole_cold_ns is None or not anatomy.whole_ns:
        return ""
    ratio = format_ratio(anatomy.whole_cold_ns / anatomy.whole_ns)
    return f"Amid other operators it takes {format_ns(anatomy.whole_cold_ns)}, {ratio} as long."


@dataclass(frozen=True, kw_only=True)
class LayerSum:
    """The stages of one layer together, in nanoseconds; their intervals are independent and add in quadrature."""

    ns: float
    low_ns: float
    high_ns: float


def layer_sums(stages: tuple[Stage, ...]) -> dict[str, LayerSum]:
    """Each layer's sum, in the order in which the layers appear."""
    members: dict[str, list[Stage]] = {}
    for stage in stages:
        members.setdefault(stage.layer, []).append(stage)
    return {name: _sum_of(layer) for name, layer in members.items()}


def _sum_of(layer: list[Stage]) -> LayerSum:
    ns = sum(stage.ns for stage in layer)
    below = math.hypot(*(stage.ns - stage.ci_low_ns for stage in layer))
    above = math.hypot(*(stage.ci_high_ns - stage.ns for stage in layer))
    return LayerSum(ns=ns, low_ns=ns - below, high_ns=ns + above)


def _layer_bar(name: str, layer: LayerSum, whole_ns: float) -> Bar:
    """One layer's share of the whole; what cannot be told from nothing has a bound and no share."""
    words, bound = _bounded_words(layer.ns, layer.low_ns, layer.high_ns), bound_ns(layer.low_ns, layer.high_ns)
    frac = 0.0 if bound is not None else layer.ns / whole_ns
    known = bound is None and abs(layer.ns) >= SMALL_NS
    return Bar(
        label=name,
        frac=max(0.0, min(1.0, frac)),
        text=f"{words}, {format_frac(frac, digits=0)}" if known else words,
    )


def _ladder(anatomy: Anatomy) -> tuple[Block, ...]:
    if not anatomy.stages:
        return ()
    whole = anatomy.whole_ns or 1.0
    layers = layer_sums(anatomy.stages)
    bars = tuple(_layer_bar(name, layer, whole) for name, layer in layers.items())
    level = format_frac(anatomy.ci_level, digits=0)
    notes: tuple[Block, ...] = tuple(Paragraph(text=sentence(text), tone="note") for text in anatomy.unseparated)
    probe = anatomy.probe or {}
    reached = f"Reached by: {probe.get('kind', 'unknown')} probe" + (
        f", {probe['compiler']}" if probe.get("compiler") else ""
    )
    return (
        Heading(text="Layers"),
        Bars(bars=bars, caption="Share of the whole call, hot."),
        Heading(text="Stages"),
        Table(
            columns=(
                Column(title="Stage"),
                Column(title="Hot", align="right"),
                Column(title=f"{level} interval", align="right", priority=2),
                Column(title="Cold", align="right"),
                Column(title="What it is", priority=3, fit="wrap"),
            ),
            rows=(*map(_stage_row, anatomy.stages), _remainder_row(anatomy), _whole_row(anatomy)),
            caption="Each stage is the difference of two calls that stop at neighbouring depths, timed for it alone; "
            "the whole is timed by itself. Cold: between other operators. “<”: cannot be told from nothing.",
        ),
        *_per_tensor(anatomy.per_tensor_ns),
        Paragraph(text=f"{reached}.", tone="note"),
        *_under("Not told apart here", notes),
    )


def _per_tensor(ns: float | None) -> tuple[Block, ...]:
    if ns is None:
        return ()
    note = "each further tensor argument: finding the keys touches it; measured on an operator that does nothing"
    return (Facts(facts=(Fact(label="Further tensor", value=format_ns(ns), note=note),)),)


def _under(title: str, notes: tuple[Block, ...]) -> tuple[Block, ...]:
    return (Heading(text=title, level=3), *notes) if notes else ()


def stage_words(ns: float | None) -> str:
    """A stage's time; those too small to be resolved say so, and whether they came out negative."""
    if ns is None:
        return "n/a"
    if abs(ns) < SMALL_NS:
        return f"< {SMALL_NS:.0f} ns"
    return format_ns(ns)


def _bounded_words(ns: float | None, low_ns: float | None, high_ns: float | None) -> str:
    """A stage's time; behind a long kernel a small one may be known by what it is below, and not better."""
    bound = bound_ns(low_ns, high_ns)
    return stage_words(ns) if bound is None else f"< {format_ns(math.ceil(bound / 10) * 10)}"


def _stage_row(stage: Stage) -> tuple[str, ...]:
    return (
        stage.name,
        _bounded_words(stage.ns, stage.ci_low_ns, stage.ci_high_ns),
        format_range_ns(stage.ci_low_ns, stage.ci_high_ns),
        "–" if stage.cold_ns is None else _bounded_words(stage.cold_ns, stage.cold_low_ns, stage.cold_high_ns),
        stage.meaning,
    )


def _remainder_row(anatomy: Anatomy) -> tuple[str, ...]:
    share = f", {format_frac((anatomy.remainder_ns or 0.0) / anatomy.whole_ns)}" if anatomy.whole_ns else ""
    return (
        "remainder",
        stage_words(anatomy.remainder_ns),
        format_range_ns(anatomy.remainder_low_ns, anatomy.remainder_high_ns),
        "–",
        f"the whole less all stages{share}",
    )


def _whole_row(anatomy: Anatomy) -> tuple[str, ...]:
    return (
        "whole",
        format_ns(anatomy.whole_ns),
        format_range_ns(anatomy.whole_ci_low_ns, anatomy.whole_ci_high_ns),
        format_ns(anatomy.whole_cold_ns) if anatomy.whole_cold_ns is not None else "–",
        anatomy.entry,
    )


def _variants(variants: tuple[Variant, ...]) -> tuple[Block, ...]:
    if not variants:
        return ()
    groups = dict.fromkeys(variant.group for variant in variants)
    return (
        Heading(text="Other ways to ask for the same"),
        *(
            block
            for group in groups
            for block in _variant_group(group, tuple(variant for variant in variants if variant.group == group))
        ),
    )


def _variant_group(group: str, variants: tuple[Variant, ...]) -> tuple[Block, ...]:
    """The ways of one group under its name, each held against the first."""
    rows = tuple(
        (
            variant.name,
            "refused" if variant.ns is None else format_ns(variant.ns),
            "–" if variant.extra_ns is None else _signed(variant.extra_ns, variant.ns or 0.0),
            variant.note,
        )
        for variant in variants
    )
    return (
        Heading(text=sentence(group).rstrip("."), level=3),
        Table(
            columns=(
                Column(title="Way"),
                Column(title="Per call", align="right"),
                Column(title="Against the first", align="right"),
                Column(title="Note", priority=2, fit="wrap"),
            ),
            rows=rows,
        ),
    )


def _signed(ns: float, beside: float) -> str:
    if abs(ns) < SMALL_NS <= beside:
        return f"± < {SMALL_NS:.0f} ns"
    return ("+" if ns > 0 else "") + format_ns(ns)


def _modes(modes: tuple[ModeCost, ...]) -> tuple[Block, ...]:
    if not modes:
        return ()
    first = modes[0].ns
    rows = tuple(
        (
            mode.mode,
            format_ns(mode.ns),
            format_ratio(mode.ns / first) if mode.ns and first else "–",
            format_bytes(mode.saved_bytes),
            format_bytes(mode.peak_bytes),
            "n/a" if mode.nodes is None else f"{mode.nodes:,}",
            "n/a" if mode.allocations is None else f"{mode.allocations:,}",
            "n/a" if mode.intermediates is None else f"{mode.intermediates:,}",
        )
        for mode in modes
    )
    return (
        Heading(text="Grad modes"),
        Table(
            columns=(
                Column(title="Mode"),
                Column(title="Per call", align="right"),
                Column(title="To grad", align="right"),
                Column(title="Saved for backward", align="right"),
                Column(title="Peak", align="right", priority=2),
                Column(title="Nodes", align="right", priority=2),
                Column(title="Allocations", align="right", priority=2),
                Column(title="Intermediates", align="right", priority=3),
            ),
            rows=rows,
        ),
        *(
            Paragraph(text=f"Not timed under {mode.mode}: {mode.why_not.rstrip('.')}.", tone="note")
            for mode in modes
            if mode.why_not
        ),
    )
