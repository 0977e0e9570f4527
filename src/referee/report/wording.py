"""Which words are used? The names of clocks, regimes, severities and evidence, the same in every report."""

from __future__ import annotations

from collections.abc import Mapping

from referee.records.finding import CODES, Finding, Scalar
from referee.records.provenance import Provenance, describe_shapes
from referee.units import format_number, format_quantity

CLOCKS = {
    "settled_amortised": "settled, amortised",
    "settled_per_call": "settled, per call",
    "enqueue": "enqueue",
    "device": "device",
}
"""The four clocks by the name that provenance uses."""

SEVERITY_SIGNS = {"fatal": "✖", "warning": "▲", "info": "•"}
_SEVERITIES = ("fatal", "warning", "info")

_SUFFIXES = ("ns", "bytes", "frac", "per_s", "ratio")


def severity_order(finding: Finding) -> int:
    """The place of a finding when the most severe come first."""
    return _SEVERITIES.index(finding.severity)


def sentence(text: str) -> str:
    """``text`` with a capital first letter and a full stop; a name in front (``step.py:train``) stays as it is."""
    text = text.strip()
    if not text:
        return ""
    first = text.split(maxsplit=1)[0]
    head = text[0] if any(mark in first for mark in ".:/=_") else text[0].upper()
    return head + text[1:] + ("" if text[-1] in ".!?…" else ".")


def reason(text: str | None) -> str:
    """A short reason in words: the meaning of a finding code, or the text itself."""
    return CODES.get(text or "", text or "")


def named_quantity(name: str, value: Scalar) -> str:
    """``wait_ns``, 1500 → ``wait 1.50 µs``: the suffix of a name says its unit."""
    stem, unit = name, ""
    for suffix in _SUFFIXES:
        if name.endswith(f"_{suffix}"):
            stem, unit = name.removesuffix(f"_{suffix}"), suffix
    return f"{stem.replace('_', ' ')} {format_quantity(value, unit)}"


def evidence_line(evidence: Mapping[str, Scalar]) -> str:
    """The figures of a finding in one line."""
    return " · ".join(named_quantity(name, value) for name, value in evidence.items())


def plural(count: int, one: str, many: str = "") -> str:
    """``1 step``, ``5 steps``, ``1,204 kernels``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def precise_ratio(ratio: float | None) -> str:
    """A ratio of times with the thousandths, in which comparisons are decided."""
    return "n/a" if ratio is None else f"{ratio:.3f}" if ratio < 10 else format_number(ratio)


ONE_PAIR = "one pair only, no interval"


def ratio_range(low: float | None, high: float | None, *, pairs: int | None = None) -> str:
    """Two ratios of times: ``0.912 to 0.934``; empty where one is not known.

    ``pairs``: how many ratios the interval stands on, where that is known; one has no interval.
    """
    if pairs == 1 and low is not None and low == high:
        return ONE_PAIR
    return "" if low is None or high is None else f"{precise_ratio(low)} to {precise_ratio(high)}"


def clock_name(provenance: Provenance) -> str:
    """The clock of the headline number in words."""
    clock = str(provenance.value("method.clock"))
    return CLOCKS.get(clock, clock)


def context_lines(provenance: Provenance) -> tuple[str, ...]:
    """Chip, dtype, shapes and method: the lines without which no number is printed."""
    value = provenance.value
    threads = value("chip.threads")
    chip = f"{value('chip.model')}, {format_quantity(threads)} thread{'' if threads == 1 else 's'}"
    if provenance.accelerator is not None:
        chip = f"{value('accelerator.name')} · host {chip}"
    method = f"clock: {clock_name(provenance)} · settle: {value('method.settle')}"
    shapes = f"{provenance.dtype} · {describe_shapes(provenance.shapes)}"
    software = f"torch {value('software.torch')}"
    return f"{chip} · {software}", shapes, method
