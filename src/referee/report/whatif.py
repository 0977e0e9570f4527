"""What would change? Each edit's range, with the replay's own error and its answer to change beside it."""

from __future__ import annotations

from referee.records.document import Column, Document, Entries, Entry, Fact, Facts, Heading, Headline, Table
from referee.records.whatif import EditResult, WhatIf
from referee.report.findings import alarm_blocks, finding_blocks
from referee.report.provenance import provenance_blocks
from referee.report.wording import precise_ratio
from referee.units import format_frac, format_ns, format_range_ns


def compose_whatif(answer: WhatIf) -> Document:
    """The answer as a document."""
    shown = (*answer.edits, *((answer.together,) if answer.together else ()))
    return Document(
        title=answer.source,
        blocks=(
            _headline(answer),
            *alarm_blocks(answer.findings),
            Heading(text="If"),
            _table(shown),
            Heading(text="On these assumptions"),
            Entries(entries=tuple(Entry(title=e.name, text=e.basis) for e in answer.edits), numbered=False),
            Heading(text="What the replay is worth"),
            _worth(answer),
            *finding_blocks(answer.findings),
            *(provenance_blocks(answer.provenance) if answer.provenance else ()),
        ),
    )


def _headline(answer: WhatIf) -> Headline:
    chosen = answer.together or answer.edits[0]
    return Headline(
        figure=format_range_ns(chosen.low_ns, chosen.high_ns),
        sentence=f"Predicted, not measured: {chosen.name}; recorded {format_ns(answer.recorded_ns)}.",
        context=(
            f"replayed without an edit: {format_frac(answer.replay_error_frac, digits=2)} off the record; "
            f"halving every time gives {precise_ratio(answer.response.all_half)} of it",
        ),
        tone="warn" if answer.findings else "plain",
    )


def _table(edits: tuple[EditResult, ...]) -> Table:
    columns = (
        Column(title="Edit", fit="wrap"),
        Column(title="Time", align="right"),
        Column(title="Gain", align="right"),
    )
    rows = tuple(
        (
            edit.name,
            format_range_ns(edit.low_ns, edit.high_ns),
            f"{format_frac(edit.gain_low_frac, digits=0)} to {format_frac(edit.gain_high_frac, digits=0)}",
        )
        for edit in edits
    )
    return Table(columns=columns, rows=rows, caption="Predicted by replay; referee remedy measures.")


def _worth(answer: WhatIf) -> Facts:
    response = answer.response
    busy = "not known" if answer.busy_frac is None else format_frac(answer.busy_frac)
    return Facts(
        facts=(
            Fact(label="Recorded", value=format_ns(answer.recorded_ns)),
            Fact(label="Replayed", value=format_ns(answer.replayed_ns)),
            Fact(label="Error", value=format_frac(answer.replay_error_frac, digits=2)),
            Fact(label="All times halved", value=precise_ratio(response.all_half), note="must be 0.5"),
            Fact(label="Device halved", value=precise_ratio(response.device_half), note=f"busy {busy}"),
            *(
                ()
                if response.device_gone is None
                else (Fact(label="Device gone", value=precise_ratio(response.device_gone), note="the host's own path"),)
            ),
            Fact(label="Host halved", value=precise_ratio(response.host_half)),
        )
    )
