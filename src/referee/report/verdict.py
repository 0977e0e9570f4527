"""Which regime is it, in one sentence? The verdict, its reasoning, and the remedies, as blocks."""

from __future__ import annotations

from referee.records.document import Block, Entries, Entry, Headline, Paragraph, Tone
from referee.records.trace_report import TraceReport
from referee.records.verdict import PAUSES_IN, Evidence, Remedy, Verdict
from referee.report.wording import reason, sentence
from referee.units import format_frac, format_ns, format_quantity, format_range_ns

_CAUSES: dict[str, str] = {
    "launch-bound": "The device waits for the host to issue the next operation",
    "compute-bound": "The device is the limit: its own work sets the time",
    "sync-bound": "The host stops to wait for the device, and the device then waits for the host",
    "input-bound": "The device waits for the data loader",
    "transfer-bound": "Copies that no computation hides set the time",
    "communication-bound": "Collectives that no computation hides set the time",
    "cold": "First-time work sets the time: this is not the steady state",
    "overhead-bound": "The cost of issuing each operation exceeds its arithmetic",
    "mixed": "No single cause dominates",
    "cannot-tell": "The evidence does not decide",
}
"""What each regime means, as the beginning of a sentence."""

_UNNAMED = {
    "pauses": "The host stands still, and the file does not say why",
    "computation on the host": "The device waits while the host computes",
    "other devices": "Devices take turns: one waits for what another computes",
    "recurring allocator": "Allocations that reach the driver hold the host up again and again",
}
"""What a mixed verdict means where one loss leads that names no regime, by how its reason begins."""

_ON_CPU = {"compute-bound": "Arithmetic sets the time: it grows with the batch"}
"""What regimes mean where the host is the device."""

_TONES: dict[str, Tone] = {"compute-bound": "good", "cannot-tell": "note", "mixed": "warn"}


def verdict_headline(verdict: Verdict, *, trace: TraceReport | None, context: tuple[str, ...]) -> Headline:
    """The regime, the sentence that explains it, and the figure behind it where a trace gives one."""
    return Headline(
        figure="Cannot tell" if verdict.regime == "cannot-tell" else verdict.regime.capitalize(),
        sentence=verdict_sentence(verdict, trace),
        context=context,
        tone=_TONES.get(verdict.regime, "warn"),
    )


def verdict_sentence(verdict: Verdict, trace: TraceReport | None, *, of: str = "the window") -> str:
    """The regime in one sentence, with the share of the window that carries it and the reason where undecided."""
    on_cpu = trace is None or not trace.totals.device_rows
    cause = _ON_CPU.get(verdict.regime, _CAUSES[verdict.regime]) if on_cpu else _CAUSES[verdict.regime]
    share = _share(verdict, trace, of=of)
    why = reason(verdict.undecided_because)
    text = f"{cause}: {share}" if share and ":" not in cause else f"{cause}{'; ' if share else ''}{share}"
    if why and verdict.regime == "mixed":
        alone = next((words for name, words in _UNNAMED.items() if why.startswith(name) and " and " not in why), "")
        cause = (_paused_in(verdict) or alone) if alone else cause
    if why:
        text = f"{cause}: {why}" if verdict.regime in ("cannot-tell", "mixed") else f"{text} ({why})"
    return sentence(text)


def _share(verdict: Verdict, trace: TraceReport | None, *, of: str) -> str:
    """The share of the window that names the regime, in words."""
    if trace is None or not trace.totals.window_ns:
        return ""
    window, idle, starved = trace.totals.window_ns, trace.idle, trace.idle.host_starved
    timeline = trace.timeline
    ns_words = {
        "launch-bound": (starved.per_op_ns, "is per-op idle"),
        "compute-bound": (trace.totals.busy_ns, "is busy"),
        "sync-bound": (idle.synchronised_ns, "is idle behind waits"),
        "input-bound": (starved.loader_ns, "is idle behind the loader"),
        "transfer-bound": (timeline.exposed_copy_ns - timeline.local_copy_ns, "is exposed copies"),
        "communication-bound": (timeline.exposed_communication_ns, "is exposed collectives"),
        "cold": (starved.one_off_ns, "is idle behind first-time work"),
    }
    if verdict.regime not in ns_words:
        return ""
    ns, words = ns_words[verdict.regime]
    frac = _judged_frac(verdict)
    if frac is None or abs(frac - ns / window) <= _SAME_FRAC:
        return f"{format_frac(ns / window)} of {of} {words}, {format_ns(ns)} of {format_ns(window)}"
    # The verdict went by more than these totals: rows set aside, allocations among the first-time costs, lost lead.
    return f"{format_frac(frac)} of {of} {words}"


def _paused_in(verdict: Verdict) -> str:
    """Where the host stands still, if the evidence says so."""
    told = (step.name.partition(PAUSES_IN)[2] for step in verdict.evidence)
    return next((f"The host stands still in {name}" for name in told if name), "")


_SAME_FRAC = 0.0005
"""Shares this near to each other read the same: a tenth of a per cent is shown."""


def _judged_frac(verdict: Verdict) -> float | None:
    """The share of the window by which the verdict was given, as its evidence has it."""
    wanted = "busy share" if verdict.regime == "compute-bound" else "largest loss"
    values = (step.value for step in verdict.evidence if step.name.startswith(f"timeline: {wanted}"))
    return next((float(value) for value in values if isinstance(value, int | float)), None)


def reasoning_blocks(verdict: Verdict) -> tuple[Block, ...]:
    """The steps of the reasoning, each with its figure, what it is held against, and what follows."""
    blocks: list[Block] = []
    if verdict.evidence:
        blocks.append(Entries(entries=tuple(_step(evidence) for evidence in verdict.evidence)))
    if verdict.would_change:
        blocks.append(Paragraph(text=f"What would change this: {verdict.would_change}", tone="note"))
    return tuple(blocks)


def _step(evidence: Evidence) -> Entry:
    return Entry(
        title=evidence.name[:1].upper() + evidence.name[1:],
        figure=format_quantity(evidence.value, evidence.unit) if evidence.value is not None else "not known",
        against=f"held against: {evidence.threshold}" if evidence.threshold else "",
        text=f"→ {evidence.so}" if evidence.so else "",
    )


def remedy_blocks(remedies: tuple[Remedy, ...]) -> tuple[Block, ...]:
    """What to try, in the order given, each with what it could recover and on what that guess stands."""
    if not remedies:
        return (Paragraph(text="Nothing in the evidence names something to try."),)
    priced = any(remedy.high_ns is not None for remedy in remedies)
    words = "Gains are predicted, per step, and not measured." if priced else "What they gain, only trying says."
    return (
        Paragraph(text=words, tone="note"),
        Entries(entries=tuple(_remedy(remedy) for remedy in remedies)),
    )


def _remedy(remedy: Remedy) -> Entry:
    return Entry(
        title=remedy.name,
        figure=gain_words(remedy.low_ns, remedy.high_ns),
        against=f"attacks {remedy.attacks}; basis: {remedy.basis}",
        code=remedy.how,
    )


def gain_words(low_ns: float | None, high_ns: float | None) -> str:
    """A predicted gain as a range; one bound alone where only one is known."""
    if low_ns is None and high_ns is None:
        return "gain not priced"
    if low_ns is None:
        return f"up to {format_ns(high_ns)}"
    if high_ns is None:
        return f"at least {format_ns(low_ns)}"
    return format_range_ns(low_ns, high_ns)
