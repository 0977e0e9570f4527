"""What changed between two traces? The change and its noise first, then by cause and by place."""

from __future__ import annotations

from pathlib import PurePath

from referee.records.diff import DiffEntry, DiffSide, TraceDiff
from referee.records.document import Block, Column, Document, Heading, Headline, Table, Tone
from referee.report.findings import alarm_blocks, finding_blocks
from referee.report.wording import plural
from referee.units import format_count, format_ns, format_ratio

_TONES: dict[str, Tone] = {"faster": "good", "slower": "bad", "same": "plain", "cannot-tell": "warn"}
_MOST_ROWS = 15


def compose_diff(diff: TraceDiff) -> Document:
    """The difference as a document."""
    return Document(
        title=f"{diff.b.source} against {diff.a.source}",
        blocks=(
            _headline(diff),
            *alarm_blocks(diff.findings),
            *_sides(diff),
            *_causes(diff),
            *_entries(diff),
            *finding_blocks(diff.findings),
        ),
    )


def _headline(diff: TraceDiff) -> Headline:
    figure = "Cannot tell" if diff.answer == "cannot-tell" else diff.answer.capitalize()
    if diff.ratio is not None and diff.answer in ("faster", "slower"):
        figure += f": {format_ratio(diff.ratio)} the time"
    if not diff.a.mean_ns or not diff.b.mean_ns:
        empty = [letter for letter, side in (("A", diff.a), ("B", diff.b)) if not side.mean_ns]
        words = f"{empty[0]} holds no" if len(empty) == 1 else "neither trace holds any"
        return Headline(figure=figure, sentence=f"No window to compare: {words} device work.", tone="warn")
    noise = "not known: too few steps" if diff.noise_ns is None else f"±{format_ns(diff.noise_ns)}"
    return Headline(
        figure=figure,
        sentence=f"B's window is {_signed(diff.change_ns)} against A's {format_ns(diff.a.mean_ns)} "
        f"(ratio {format_ratio(diff.ratio)}); the noise of the steps is {noise}.",
        context=("Times are the profiler's own; the same operators are matched by their place, not by time.",),
        tone=_TONES[diff.answer],
    )


def _signed(ns: float) -> str:
    return f"{'+' if ns >= 0 else '−'}{format_ns(abs(ns))}"


def _sides(diff: TraceDiff) -> tuple[Block, ...]:
    # The title has the whole paths: here the names do, unless they are the same.
    names = [PurePath(side.source).name for side in (diff.a, diff.b)]
    told = names if all(names) and names[0] != names[1] else [diff.a.source, diff.b.source]

    def row(letter: str, name: str, side: DiffSide) -> tuple[str, ...]:
        return (
            letter,
            name,
            " and ".join(side.devices) or "–",
            side.regime,
            format_count(side.steps),
            format_ns(side.mean_ns),
            "–" if side.spread_ns is None else format_ns(side.spread_ns),
            format_count(side.operators),
            format_count(side.device_rows),
        )

    columns = (
        Column(title=""),
        Column(title="Trace", fit="shorten"),
        Column(title="Device", fit="shorten", priority=2),
        Column(title="Regime"),
        Column(title="Steps", align="right", priority=2),
        Column(title="Mean window", align="right"),
        Column(title="Spread", align="right", priority=3),
        Column(title="Operators", align="right", priority=3),
        Column(title="Device rows", align="right", priority=3),
    )
    return Heading(text="The two traces"), Table(
        columns=columns, rows=(row("A", told[0], diff.a), row("B", told[1], diff.b))
    )


def _causes(diff: TraceDiff) -> tuple[Block, ...]:
    rows = tuple(
        (cause.name, format_ns(cause.a_ns), format_ns(cause.b_ns), _signed(cause.b_ns - cause.a_ns))
        for cause in sorted(diff.causes, key=lambda cause: -abs(cause.b_ns - cause.a_ns))
        if cause.a_ns or cause.b_ns
    )
    columns = (
        Column(title="Part of the window"),
        Column(title="A", align="right"),
        Column(title="B", align="right"),
        Column(title="Change", align="right"),
    )
    caption = "The parts sum to the mean windows, so the changes sum to the change."
    return Heading(text="By cause"), Table(columns=columns, rows=rows, caption=caption)


def _entries(diff: TraceDiff) -> tuple[Block, ...]:
    ordered = sorted(diff.entries, key=lambda entry: -abs(_change_ns(entry)))
    rows = tuple(
        (
            f"{entry.path} · {entry.name}" if entry.path else entry.name,
            entry.status,
            f"{entry.count_a:,} → {entry.count_b:,}",
            f"{format_ns(entry.device_a_ns)} → {format_ns(entry.device_b_ns)}",
            f"{format_ns(entry.idle_a_ns)} → {format_ns(entry.idle_b_ns)}",
            _signed(_change_ns(entry)),
        )
        for entry in ordered[:_MOST_ROWS]
    )
    if not rows:
        return ()
    columns = (
        Column(title="Operator, by place", fit="shorten"),
        Column(title="Status"),
        Column(title="Count", align="right", priority=2),
        Column(title="Device time", align="right"),
        Column(title="Idle before", align="right", priority=2),
        Column(title="Change", align="right"),
    )
    left = len(ordered) - len(rows)
    caption = "Matched, added and removed sum to the aligned steps."
    if left > 0:
        caption += f" {plural(left, 'further place')} in the JSON."
    return Heading(text="By place"), Table(columns=columns, rows=rows, caption=caption)


def _change_ns(entry: DiffEntry) -> int:
    return entry.device_b_ns + entry.idle_b_ns - entry.device_a_ns - entry.idle_a_ns
