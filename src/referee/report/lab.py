"""Which claims hold here? The rows as a table, and each with what was found and what it teaches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from referee.records.document import (
    Block,
    Column,
    Document,
    Entries,
    Entry,
    Fact,
    Facts,
    Heading,
    Headline,
    Table,
    Tone,
)
from referee.records.lab import LabPart, LabReport, LabRow
from referee.report.findings import finding_blocks
from referee.report.provenance import provenance_blocks
from referee.report.wording import context_lines
from referee.units import format_apart, format_ns, format_quantity

_WORDS = {"holds": "holds", "differs": "differs", "needs-device": "needs a device", "cannot-tell": "cannot tell"}
_INTERVALS = "intervals: of this run; another process or a busier machine can lie outside of them"
_NOTHING = 1e-300
"""A least that is as small as a number can be: whatever is above zero."""
_SYMBOLS = frozenset({"ns", "ratio", "frac", "bytes", "per_s"})
_PLURAL = {"holds": "hold", "differs": "differ", "needs-device": "need a device", "cannot-tell": "cannot be told"}
_WHY = {"holds": "Seen beside it", "differs": "Why", "needs-device": "What it takes", "cannot-tell": "Why not"}
_TONES: dict[str, Tone] = {"holds": "good", "differs": "warn", "needs-device": "note", "cannot-tell": "note"}


def compose_lab(report: LabReport) -> Document:
    """The report as a document."""
    counts = Counter[str](row.outcome for row in report.rows)
    summary = ", ".join(f"{counts[key]} {_verb(key, counts[key])}" for key in _WORDS if counts[key])
    columns = (
        Column(title="Claim"),
        Column(title="Claimed", align="right", priority=2),
        Column(title="Measured here", align="right"),
        Column(title="Interval", align="right", priority=3),
        Column(title="Outcome"),
    )
    return Document(
        title="The claims, put to the test",
        blocks=(
            Headline(
                figure=f"{counts['holds']} of {len(report.rows)} hold",
                sentence=f"{summary[:1].upper()}{summary[1:]}; {_in_part(report)}tested in "
                f"{format_ns(report.took_ns)}.",
                context=(*_context(report), *_from_traces(report)),
                tone="note",
            ),
            Table(columns=columns, rows=tuple(_row(row) for row in report.rows)),
            Heading(text="Each claim, and what it teaches"),
            Entries(entries=tuple(_entry(row) for row in report.rows), numbered=False),
            *finding_blocks(report.findings),
            *_trace_blocks(report),
            *_provenance(report),
        ),
    )


def _in_part(report: LabReport) -> str:
    """How many rows leave a part of their claim untested, whatever came out for the rest."""
    count = sum(bool(row.untested_parts) for row in report.rows)
    if not count:
        return ""
    rows = "row leaves a part of its claim" if count == 1 else "rows leave a part of their claim"
    return f"{count} {rows} untested, as the table says; "


def _context(report: LabReport) -> tuple[str, ...]:
    """Chip, dtype and method; the shapes, which are each row's own, stand there."""
    chip, _, method = context_lines(report.provenance)
    return chip, f"{report.provenance.dtype} · shapes: with each claim", method, *_load(report), _INTERVALS


def _load(report: LabReport) -> tuple[str, ...]:
    """How busy the machine was with other work when the run began, where that was read."""
    load, cores = (report.provenance.value(key) for key in ("machine_state.load_1min", "chip.logical_cores"))
    if not isinstance(load, int | float) or isinstance(load, bool):
        return ()
    on = f" on {cores} logical cores" if isinstance(cores, int) else ""
    return (f"load when the run began: {load:.2f}{on}, over the minute before",)


def _recorded(report: LabReport) -> int:
    return sum(row.basis == "recorded" for row in report.rows)


def _from_traces(report: LabReport) -> tuple[str, ...]:
    """How many rows come from devices that are not here."""
    count = _recorded(report)
    if not count:
        return ()
    rows, traces = ("row" if count == 1 else "rows"), ("trace" if len(report.traces) == 1 else "traces")
    return (f"{count} {rows} from {len(report.traces)} recorded {traces} of other devices",)


def _trace_blocks(report: LabReport) -> tuple[Block, ...]:
    """Every trace with its chips, and the command that made the page."""
    blocks: list[Block] = []
    if report.traces:
        rows = tuple((trace.name, ", ".join(trace.chips) or "not stated in the file") for trace in report.traces)
        columns = (Column(title="Trace", fit="wrap"), Column(title="Chip", fit="wrap"))
        blocks += [Heading(text="The traces that were read"), Table(columns=columns, rows=rows)]
    if report.command:
        blocks.append(Facts(facts=(Fact(label="Made by", value=report.command),)))
    return tuple(blocks)


def _provenance(report: LabReport) -> tuple[Block, ...]:
    """Where the rows measured here come from; the devices of the others stand with the traces."""
    instead = {"Inputs": "each row's own, told under How"}
    if _recorded(report) and report.provenance.accelerator is None:
        instead["Accelerator"] = "none here; rows from traces: the chips named with each trace"
    return tuple(
        replace(block, facts=_said_better(block, instead)) if isinstance(block, Facts) else block
        for block in provenance_blocks(report.provenance)
    )


def _said_better(block: Facts, instead: Mapping[str, str]) -> tuple[Fact, ...]:
    return tuple(replace(fact, value=instead.get(fact.label, fact.value)) for fact in block.facts)


def compose_claims(claims: Sequence[tuple[str, str, str]]) -> Document:
    """The list of claims: id, what is claimed, what would be measured."""
    columns = (Column(title="ID"), Column(title="Claimed", fit="wrap"), Column(title="Measures", fit="wrap"))
    return Document(title="Claims", blocks=(Table(columns=columns, rows=tuple(claims)),))


def _verb(outcome: str, count: int) -> str:
    return _WORDS[outcome] if count == 1 else _PLURAL[outcome]


def _row(row: LabRow) -> tuple[str, ...]:
    known = row.measured is not None
    return (
        row.id,
        claimed_range(row),
        _quantity(row.measured, row.unit) if known else "–",
        _interval(row) if known else "–",
        _outcome(row) + (", from traces" if row.basis == "recorded" else "") + _left_out(row),
    )


def _outcome(row: LabRow) -> str:
    """The outcome; where a part decided it and not the number, the part by its name; and what cannot be told too."""
    by = {key: ", ".join(part.name for part in row.parts if part.outcome == key) for key in ("differs", "cannot-tell")}
    open_too = (
        f"; {_WORDS['cannot-tell']}: {by['cannot-tell']}" if row.outcome == "differs" and by["cannot-tell"] else ""
    )
    if not by.get(row.outcome) or not (_within(row) or (row.outcome == "differs" and _across(row))):
        return f"{_WORDS[row.outcome]}{open_too}"
    number = "number holds" if _within(row) else "number cannot be told"
    return f"{number}; {_WORDS[row.outcome]}: {by[row.outcome]}{open_too}"


def _left_out(row: LabRow) -> str:
    """The parts of the claim that the outcome says nothing of."""
    if not row.untested_parts:
        return ""
    return f" (not tested: {', '.join(row.untested_parts)})"


def _across(row: LabRow) -> bool:
    """Whether the interval of the number has values on both sides of a bound."""
    if row.low is None or row.high is None:
        return False
    below = row.claimed_low is not None and row.high < row.claimed_low
    above = row.claimed_high is not None and row.low > row.claimed_high
    return not below and not above and not _within(row)


def _within(row: LabRow) -> bool:
    """Whether the number itself lies, with its whole interval, in the range."""
    if row.low is None or row.high is None:
        return False
    above = row.claimed_low is None or row.claimed_low <= row.low
    return above and (row.claimed_high is None or row.high <= row.claimed_high)


def _interval(row: LabRow | LabPart) -> str:
    """The interval; an end that is not a bound of the range does not look like it."""
    low, high = (_end(value, row) for value in (row.low, row.high))
    plain = _span(row.low, row.high, row.unit)
    changed = (low, high) != (_quantity(row.low, row.unit), _quantity(row.high, row.unit))
    return f"{low} to {high}" if changed else plain


def _end(value: float | None, row: LabRow | LabPart) -> str:
    words = _quantity(value, row.unit)
    if value is None:
        return words
    for bound in (row.claimed_low, row.claimed_high):
        if bound is not None and bound != value and words == _quantity(bound, row.unit):
            words, _ = format_apart(value, bound, row.unit)
    return words


def claimed_range(row: LabRow | LabPart) -> str:
    """The range that the claim allows, in words."""
    low, high = row.claimed_low, row.claimed_high
    if low is None:
        return "no figure" if high is None else f"at most {_quantity(high, row.unit)}"
    if high is None:
        return "more than nothing" if 0 < low < _NOTHING else f"at least {_quantity(low, row.unit)}"
    return _span(low, high, row.unit)


def _quantity(value: float | None, unit: str) -> str:
    """With the unit in the singular where there is one of it."""
    return format_quantity(value, unit.removesuffix("s") if value == 1 and unit not in _SYMBOLS else unit)


def _span(low: float | None, high: float | None, unit: str) -> str:
    """``2 to 4 kernels``: the unit once, where both ends have the same."""
    first, last = _quantity(low, unit), _quantity(high, unit)
    if first == last:
        return last
    number, _, ending = first.rpartition(" ")
    return f"{number} to {last}" if number and last.endswith(f" {ending}") else f"{first} to {last}"


def _entry(row: LabRow) -> Entry:
    return Entry(
        title=f"{row.id}: {row.claimed}",
        figure=_WORDS[row.outcome] + _left_out(row),
        lines=_lines(row),
        tone=_TONES[row.outcome],
    )


def _lines(row: LabRow) -> tuple[Fact, ...]:
    """What it takes to repeat the claim to somebody else, and the measurement on another machine."""
    reason = f" ({row.range_from.rstrip('.')})" if row.range_from else ""
    found = _found(row, "live" if "counted" in row.taken else row.basis)
    given = (
        ("The number", f"{row.measures}."),
        ("True if it is", f"{claimed_range(row)}{reason}."),
        ("Found in traces" if row.basis == "recorded" else "Found here", f"{found}." if found else ""),
        ("Its other figures", f"{'; '.join(_part(part, row.basis) for part in row.parts)}." if row.parts else ""),
        ("How", f"{row.how} n: {row.taken}." if row.taken else row.how),
        (_WHY[row.outcome], row.why),
        ("The course contradicts itself", row.contradiction),
        ("Not tested here", row.untested),
        ("Traces", f"{_some(row.sources)}." if row.sources else ""),
        ("What it teaches", row.teaches),
        ("Words", "; ".join(f"{term}: {meaning}" for term, meaning in (row.words or {}).items())),
    )
    return tuple(
        Fact(label=label, value=value, tone="note" if label == "Words" else "plain") for label, value in given if value
    )


def _found(row: LabRow | LabPart, basis: str) -> str:
    """The number with its interval; nothing where there is none. A median over traces is exact and not counted."""
    if row.measured is None:
        return ""
    number, span = _quantity(row.measured, row.unit), _interval(row)
    exact = row.low == row.measured == row.high
    alone = "interval: this one value" if basis == "recorded" else "counted"
    interval = alone if exact else "to all digits shown" if number == span else f"interval {span}"
    return f"{number} ({interval})"


def _part(part: LabPart, basis: str) -> str:
    """A further figure of the claim, as the number is told: what came out, what is claimed, the outcome."""
    found = _found(part, "live" if part.counted else basis) or "not measured"
    return f"{part.name}: {found}, claimed {claimed_range(part)}: {_WORDS[part.outcome]}"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"
