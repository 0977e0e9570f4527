"""What does autocast do to this step, here and elsewhere? The advisor's audit as blocks of its document."""

from __future__ import annotations

from referee.records.document import Block, Column, Fact, Facts, Heading, Paragraph, Table
from referee.records.precision import AutocastAudit, AutocastOp, CastGroup
from referee.units import format_bytes, format_count, format_ns

_MOST_OPS = 24


def autocast_blocks(audit: AutocastAudit) -> tuple[Block, ...]:
    """The casts, the operators by dtype, and what another device's autocast would do otherwise."""
    facts = (
        Fact(
            label="Casts", value=format_count(audit.casts), note=f"{format_bytes(audit.casts_bytes)} read and written"
        ),
        Fact(label="Time of the casts", value=format_ns(audit.casts_ns), note="timed apart from the step"),
        Fact(label="Weights found cast already", value=format_count(audit.weight_casts_kept)),
        Fact(label="Context", value=audit.site),
    )
    columns = (
        Column(title="Casts by"),
        Column(title="Phase", priority=5),
        Column(title="Of", priority=2),
        Column(title="From", priority=3),
        Column(title="To", priority=3),
        Column(title="Number", align="right"),
        Column(title="Repeated", align="right", priority=4),
        Column(title="Bytes", align="right", priority=4),
    )
    rows = tuple(
        (
            g.who,
            g.phase,
            g.of,
            g.source,
            g.target,
            format_count(g.count),
            format_count(g.repeats),
            format_bytes(g.bytes),
        )
        for g in audit.cast_groups
    )
    return (
        Heading(text=f"What {audit.dtype} autocast does"),
        Facts(facts=facts),
        Table(columns=columns, rows=rows),
        _ops(audit.ops),
        *_elsewhere(audit),
    )


def _ops(ops: tuple[AutocastOp, ...]) -> Table:
    shown = [op for op in ops if op.phase == "forward"][:_MOST_OPS]
    columns = (
        Column(title="Operator (forward)", fit="shorten"),
        Column(title="In", fit="wrap", priority=3),
        Column(title="Out", priority=2),
        Column(title="Calls", align="right", priority=3),
        Column(title="Casts", align="right", priority=4),
        Column(title="Why"),
        Column(title="Where", fit="shorten", priority=5),
    )
    rows = tuple(
        (
            op.op.removeprefix("aten::"),
            ", ".join(dict.fromkeys(op.inputs)),
            op.output,
            format_count(op.count),
            format_count(op.casts),
            op.why,
            ", ".join(op.modules[:2]),
        )
        for op in shown
    )
    left = len(ops) - len(shown)
    return Table(
        columns=columns, rows=rows, caption=f"{left} more kinds, backward included, in the JSON." if left else ""
    )


def _elsewhere(audit: AutocastAudit) -> tuple[Block, ...]:
    """The other device's autocast: what differs, how many casts, and what could not be found out."""
    device = audit.elsewhere_device
    missing = tuple(
        Paragraph(text=f"{what}: {why}.", tone="note")
        for what, why in (
            (f"Not compared with {device or 'another device'} throughout", audit.not_compared),
            (f"{device}'s backward is not derived throughout", audit.not_derived),
        )
        if why
    )
    if not device:
        return missing
    heading = Heading(text=f"What {device}'s autocast would do otherwise")
    casts = _casts_there(audit)
    if not audit.elsewhere:
        words = "The same in every call that was compared, forward and backward."
        return heading, Paragraph(text=words), *missing, *casts
    columns = (
        Column(title="Call", fit="shorten"),
        Column(title="Phase", priority=2),
        Column(title="Where", fit="shorten", priority=5),
        Column(title="Here", priority=2),
        Column(title=device, fit="wrap"),
        Column(title="Calls", align="right", priority=4),
    )
    rows = tuple(
        (d.call, _phase(d.derived), d.place, d.here, d.there, format_count(d.count))
        for d in audit.elsewhere[: 2 * _MOST_OPS]
    )
    caption = "Dtypes of results; forward found with fake tensors, no device needed; backward derived from it, not run."
    return heading, Table(columns=columns, rows=rows, caption=caption), *missing, *casts


def _phase(derived: bool) -> str:
    return "backward, derived" if derived else "forward"


def _casts_there(audit: AutocastAudit) -> tuple[Block, ...]:
    """Casts here and there by phase; what the user's own code casts apart."""
    if not audit.elsewhere_casts:
        return ()

    def count(groups: tuple[CastGroup, ...], phase: str) -> int:
        return sum(g.count for g in groups if g.phase == phase and g.who != "explicit")

    columns = (
        Column(title="Casts of autocast"),
        Column(title="Here", align="right"),
        Column(title=audit.elsewhere_device, align="right"),
    )
    rows = tuple(
        (words, format_count(count(audit.cast_groups, phase)), format_count(count(audit.elsewhere_casts, phase)))
        for phase, words in (("forward", "forward"), ("backward", f"backward (on {audit.elsewhere_device} derived)"))
    )
    return (Table(columns=columns, rows=rows),)
