"""Does our own clock tell the truth here? The self-test as a document."""

from __future__ import annotations

from collections.abc import Sequence

from referee.records.document import Column, Document, Fact, Facts, Headline, Table
from referee.units import format_ns

Row = tuple[str, float, float, float, float, bool]
"""Name, own time, measured time, error, limit (all in nanoseconds per call), passed."""


def compose_selftest(rows: Sequence[Row], *, overhead_ns: float, shell_ns: float) -> Document:
    """What each callable says of itself against what was measured, and how far the two may be apart."""
    failed = sum(not row[-1] for row in rows)
    columns = (
        Column(title="Callable"),
        Column(title="Its own clock", align="right"),
        Column(title="Measured", align="right"),
        Column(title="Error", align="right"),
        Column(title="Limit", align="right"),
        Column(title=""),
    )
    return Document(
        title="Self-test",
        blocks=(
            Headline(
                figure="Passed" if not failed else f"Failed: {failed} of {len(rows)}",
                sentence="Callables of known length, timed through the whole path and held against their own clock.",
                context=(),
                tone="good" if not failed else "bad",
            ),
            Table(
                columns=columns,
                rows=tuple(
                    (name, *(format_ns(ns) for ns in figures), "within" if passed else "OUTSIDE")
                    for name, *figures, passed in rows
                ),
            ),
            Facts(
                facts=(
                    Fact(label="Subtracted", value=format_ns(overhead_ns), note="per call of an empty callable"),
                    Fact(label="Around a spin", value=format_ns(shell_ns), note="outside of its own readings"),
                )
            ),
        ),
    )
