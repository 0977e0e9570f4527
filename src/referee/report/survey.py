"""What are all operators of a namespace made of? The survey as a document: ladders first, then who has none."""

from __future__ import annotations

from referee.records.anatomy import AnatomySurvey, SurveyRow
from referee.records.document import Block, Column, Document, Heading, Headline, Table
from referee.report.anatomy import stage_words
from referee.report.findings import finding_blocks
from referee.report.provenance import provenance_blocks
from referee.report.wording import context_lines
from referee.units import format_ns


def compose_survey(survey: AnatomySurvey) -> Document:
    """All operators of a namespace, those with a ladder first."""
    done = tuple(row for row in survey.rows if not row.refused)
    refused = tuple(row for row in survey.rows if row.refused)
    kinds: dict[str, int] = {}
    for row in done:
        kinds[row.kind] = kinds.get(row.kind, 0) + 1
    by_kind = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items(), key=lambda item: -item[1]))
    without: tuple[Block, ...] = (Heading(text="Without a ladder"), _refusals(refused)) if refused else ()
    return Document(
        title=f"Anatomy of all operators of {survey.namespace}",
        blocks=(
            Headline(
                figure=f"{len(done):,} of {len(survey.rows):,} operators",
                sentence=f"have a ladder; it took {format_ns(survey.took_ns)}. By kind: {by_kind}.",
                context=context_lines(survey.provenance),
            ),
            Heading(text="Ladders"),
            _survey_table(done),
            *without,
            *finding_blocks(survey.findings),
            *provenance_blocks(survey.provenance),
        ),
    )


def _survey_table(rows: tuple[SurveyRow, ...]) -> Table:
    layers = list(dict.fromkeys(layer for row in rows for layer in row.layers or {}))
    return Table(
        columns=(
            Column(title="Operator", fit="shorten"),
            Column(title="Kind", priority=2),
            Column(title="Whole", align="right"),
            *(Column(title=layer, align="right", priority=3) for layer in layers),
            Column(title="Remainder", align="right", priority=2),
        ),
        rows=tuple(
            (
                row.op,
                row.kind,
                format_ns(row.whole_ns),
                *(stage_words(row.layers[name]) if row.layers and name in row.layers else "–" for name in layers),
                stage_words(row.remainder_ns),
            )
            for row in rows
        ),
        caption="Coarse: 20 ms for each operator, without gradients.",
    )


def _refusals(rows: tuple[SurveyRow, ...]) -> Table:
    return Table(
        columns=(Column(title="Operator", fit="shorten"), Column(title="Why", fit="wrap")),
        rows=tuple((row.op, row.refused) for row in rows),
    )
