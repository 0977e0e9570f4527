"""Does the number hold here? A verification as a document: the answer first, then the two measurements side by side."""

from __future__ import annotations

from referee.records.document import Block, Column, Document, Fact, Facts, Heading, Headline, Table, Tone
from referee.records.measurement import Measurement
from referee.records.verify import Verification
from referee.report.findings import alarm_blocks, finding_blocks
from referee.report.measurement import median_words
from referee.report.provenance import difference_blocks, provenance_blocks
from referee.report.wording import context_lines, precise_ratio, ratio_range, sentence
from referee.units import format_count, format_frac, format_ns, format_quantity, format_range_ns

_FIGURES = {
    "reproduced": "Reproduced",
    "not-reproduced": "Not reproduced",
    "not-comparable": "Not comparable",
    "cannot-tell": "Cannot tell",
}
_TONES: dict[str, Tone] = {"reproduced": "good", "not-reproduced": "bad", "not-comparable": "warn"}


def compose_verification(verification: Verification) -> Document:
    """The verification as a document."""
    differences = ((verification.name, difference) for difference in verification.differences)
    return Document(
        title=verification.name,
        blocks=(
            Headline(
                figure=_FIGURES[verification.answer],
                sentence=sentence(verification.why),
                context=context_lines(verification.provenance),
                tone=_TONES.get(verification.answer, "warn"),
            ),
            *alarm_blocks(verification.findings),
            *_side_by_side(verification),
            *difference_blocks(differences, a="Saved", b="Here"),
            *finding_blocks(verification.findings),
            *provenance_blocks(verification.provenance),
        ),
    )


def _side_by_side(verification: Verification) -> tuple[Block, ...]:
    columns = (
        Column(title="Measurement"),
        Column(title="Median", align="right"),
        Column(title="Interval", align="right"),
        Column(title="Floor", align="right"),
        Column(title="Samples", align="right", priority=2),
        Column(title="Measured (UTC)", priority=3),
    )
    rows = (_row("saved", verification.saved), _row("here", verification.again))
    interval = ratio_range(verification.ci_low, verification.ci_high) or "no interval"
    facts = (
        Fact(label="Time here / time saved", value=precise_ratio(verification.ratio), note=interval),
        Fact(label="Tolerance", value=f"±{format_frac(verification.tolerance_frac)}"),
        *_at_one_clock(verification),
    )
    return Heading(text="Side by side"), Table(columns=columns, rows=rows), Facts(facts=facts)


def _at_one_clock(verification: Verification) -> tuple[Fact, ...]:
    """The ratio without what the core's own clock did to it."""
    slower, at_one = verification.core_clock_ratio, verification.ratio_at_one_clock
    if slower is None or at_one is None:
        return ()
    note = f"a fixed chain of instructions took {precise_ratio(slower)} of its time then"
    return (Fact(label="At one core clock", value=precise_ratio(at_one), note=note),)


def _row(name: str, measurement: Measurement) -> tuple[str, ...]:
    known = measurement.ci_low_ns is not None
    return (
        name,
        median_words(measurement) if measurement.median_ns is not None else "none",
        format_range_ns(measurement.ci_low_ns, measurement.ci_high_ns) if known else "–",
        "–" if measurement.floor_ns is None else format_ns(measurement.floor_ns),
        format_count(measurement.n),
        format_quantity(measurement.provenance.value("machine_state.time_utc")),
    )
