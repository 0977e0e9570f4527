"""Is the time possible at all? Held against the work that was done: the peak of the chip, and growth with the work.

A harness that does not wait gives itself away in two ways: its times imply more operations per second than the chip
can do, and they do not grow when the work does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from referee.device.protocol import Device
from referee.records.finding import Finding, Scalar
from referee.units import NS_PER_S, format_ns, format_rate, format_ratio

FLAT_RATIO = 1.1
"""Times that differ by less than this over the whole sweep do not grow."""

ASKED_FROM = 1e10
"""FLOP/s that every device does: below, its peak need not be known."""

WORK_RATIO = 8.0
"""The work must grow by at least this much before flat times mean anything."""


def check_flat(work: Sequence[float], times_ns: Sequence[float], *, parameter: str = "work") -> tuple[Finding, ...]:
    """Do the times fail to grow although the work grows at least eightfold?

    A warning, not a verdict: where the host is the limit at every point, flat is right. Together with a rate above the
    chip's peak (:func:`check_peak`) it means that nothing was awaited.
    """
    if len(work) < 2 or min(times_ns) <= 0 or min(work) <= 0:
        return ()
    grown, spread = max(work) / min(work), max(times_ns) / min(times_ns)
    if grown < WORK_RATIO or spread >= FLAT_RATIO:
        return ()
    return (
        Finding(
            code="flat-in-work",
            severity="warning",
            message=f"The time is constant (max/min {format_ratio(spread)}) while {parameter} grows "
            f"{format_ratio(grown)}: something else is the limit at every point, or the work is not awaited.",
            evidence={
                "parameter": parameter,
                "work_ratio": grown,
                "time_ratio": spread,
                "threshold": FLAT_RATIO,
                "points": len(work),
            },
            hint="Sweep further until the time grows; if it never does, what is timed does not depend on it.",
        ),
    )


@runtime_checkable
class KnowsWork(Protocol):
    """An observation of a step that knows how much arithmetic a call does (see ``referee.device.observe``)."""

    @property
    def flop(self) -> int | None:
        """Floating-point operations of one call, a lower bound; ``None`` where that is not known."""

    def peak_flop_per_s(self, device: Device) -> float | None:
        """More than this the device cannot do; ``None`` where that is not known."""


def known_flop(seen: object) -> int | None:
    """The floating-point operations of one call, where ``seen`` knows of any."""
    return (seen.flop or None) if isinstance(seen, KnowsWork) else None


def check_work(seen: object, time_ns: float | None, *, device: Device) -> tuple[Finding, ...]:
    """Does the headline imply more arithmetic than the device can do? Asked only where it implies a great deal."""
    if not isinstance(seen, KnowsWork) or not seen.flop or not time_ns or seen.flop * NS_PER_S / time_ns < ASKED_FROM:
        return ()
    return check_peak(time_ns, flop=seen.flop, peak_flop_per_s=seen.peak_flop_per_s(device))


def check_peak(
    time_ns: float,
    *,
    flop: float | None = None,
    peak_flop_per_s: float | None = None,
    bytes_moved: float | None = None,
    peak_bytes_per_s: float | None = None,
) -> tuple[Finding, ...]:
    """Does the time imply more operations or bytes per second than the chip can do? Fatal if it does.

    ``bytes_moved`` must be what has to come from memory (inputs larger than the caches), not what a cache may serve.
    """
    findings = []
    for what, unit, amount, peak in (
        ("operations", "FLOP", flop, peak_flop_per_s),
        ("bytes", "B", bytes_moved, peak_bytes_per_s),
    ):
        if not amount or not peak or time_ns <= 0:
            continue
        rate = amount * NS_PER_S / time_ns
        if rate <= peak:
            continue
        evidence: dict[str, Scalar] = {"rate_per_s": rate, "peak_per_s": peak, "ratio": rate / peak, "amount": amount}
        findings.append(
            Finding(
                code="above-peak",
                severity="fatal",
                message=f"{format_ns(time_ns)} implies {format_rate(rate, unit)}, {format_ratio(rate / peak)} the peak "
                f"of this chip ({format_rate(peak, unit)}): the measurement is not waiting for the {what}.",
                evidence=evidence,
                hint="Settle on the outputs before the clock is read.",
            )
        )
    return tuple(findings)


def check_table(
    work: Sequence[float],
    times_ns: Sequence[float],
    *,
    flop: Sequence[float] | None = None,
    peak_flop_per_s: float | None = None,
    parameter: str = "size",
) -> tuple[Finding, ...]:
    """Can a published table of sizes and times be believed? Both checks over all of its rows."""
    findings = list(check_flat(work, times_ns, parameter=parameter))
    if flop is not None and peak_flop_per_s:
        rows = [check_peak(t, flop=f, peak_flop_per_s=peak_flop_per_s) for t, f in zip(times_ns, flop, strict=True)]
        above = [found[0] for found in rows if found]
        if above:
            findings.append(max(above, key=lambda finding: float(finding.evidence["ratio"] or 0)))
    return tuple(findings)
