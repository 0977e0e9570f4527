"""Which regime is it? The rules that turn shares of the window into one word, or into a reason for none."""

from __future__ import annotations

from dataclasses import dataclass

from referee.analysis.shares import Share, Shares
from referee.records.trace_report import Totals
from referee.records.verdict import Regime
from referee.trace.columns import DEVICE_KINDS, Trace
from referee.units import format_frac

NAMES_FRAC = 0.24
"""A loss below this share of the window names nothing. On 41 labelled traces any value from 0.15 to 0.27 gives the same
answers."""
RIVAL_FRAC = 0.7
"""A second loss of this share of the first one, itself above the threshold, makes the verdict mixed."""
CLEAR_PER_OP_FRAC = 0.40
"""Between the threshold and this, per-op idle is partly what recording added: mixed."""
BUSY_FRAC = 0.60
"""A window this busy in which no loss stands out is compute-bound."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The regime; ``because`` is a finding code where it is ``cannot-tell``, words where it is ``mixed``."""

    regime: Regime
    because: str | None = None


def decide(trace: Trace, totals: Totals, shares: Shares) -> Decision:
    """The regime of the window, by the losses over it."""
    missing = what_is_missing(trace, totals)
    if missing is not None:
        return Decision(regime="cannot-tell", because=missing)
    return decide_by_clocks(shares)


def decide_by_clocks(shares: Shares) -> Decision:
    """The regime from the shares, unless clocks that disagree may have made up what names it."""
    if _clocks_decide(shares):
        return Decision(regime="cannot-tell", because="rows-before-launch")
    if rows_are_late(shares):
        return Decision(regime="cannot-tell", because="rows-late")
    return decide_by_shares(shares)


def _clocks_decide(shares: Shares) -> bool:
    """Whether idle time that clocks which disagree may have made up is what lets the largest loss name the regime."""
    first = shares.losses[0]
    busy = first.regime in ("transfer-bound", "communication-bound")
    if busy or first.frac < NAMES_FRAC:
        return False
    return first.ns - shares.doubtful_ns < NAMES_FRAC * shares.window_ns


def rows_are_late(shares: Shares) -> bool:
    """Whether more idle time is owed to a clock that is ahead than to any loss, and enough of it to name one."""
    return shares.late_ns >= max(NAMES_FRAC * shares.window_ns, shares.losses[0].ns, 1)


def what_is_missing(trace: Trace, totals: Totals) -> str | None:
    """The finding code of what a verdict would need and the trace does not hold; ``None`` if it may be given."""
    missing = _missing_rows(trace, totals)
    if missing not in ("lost-device-rows", "no-device-rows"):
        return missing
    # Profilers write device rows behind the host's: of a file that breaks off, they are what is missing.
    broken = next((finding.code for finding in trace.findings if finding.code in ("truncated", "damaged")), None)
    if broken is None and missing == "lost-device-rows" and _ids_are_shared(trace, totals):
        return "duplicate-correlation"
    return broken or missing


def _ids_are_shared(trace: Trace, totals: Totals) -> bool:
    """Whether launches seem to have no device row only because others of the same id were given theirs."""
    told = next((finding.evidence for finding in trace.findings if finding.code == "duplicate-correlation"), None)
    if told is None:
        return False
    robbed = int(told["launches"] or 0) - int(told["ids"] or 0)
    return 2 * (_lost_launches(trace, totals) - robbed) < totals.launches


def _missing_rows(trace: Trace, totals: Totals) -> str | None:
    """The finding code of the rows that are not there."""
    if totals.device_rows == 0:
        return "lost-device-rows" if totals.launches else "no-device-rows"
    if totals.kernels == 0:
        return "no-kernel-rows"
    if totals.device_rows < 2 or totals.window_ns <= 0 or totals.busy_ns <= 0:
        return "few-device-rows"
    if totals.launches and 2 * _lost_launches(trace, totals) >= totals.launches:
        return "lost-device-rows"
    return None


def _lost_launches(trace: Trace, totals: Totals) -> int:
    """Launches whose device rows are not in the file: rows that carry no correlation id may belong to any of them."""
    device_rows = trace.rows.of(*DEVICE_KINDS)
    anonymous = int((trace.rows.correlation[device_rows] <= 0).sum())
    return max(0, totals.launches_without_device_rows - anonymous)


def decide_by_shares(shares: Shares) -> Decision:
    """The regime from the shares alone."""
    first, second = shares.losses[:2]
    if first.frac < NAMES_FRAC:
        if shares.busy_frac >= BUSY_FRAC:
            return Decision(regime="compute-bound")
        words = f"the window is {format_frac(shares.busy_frac)} busy, and no loss reaches {format_frac(NAMES_FRAC)}"
        return Decision(regime="mixed", because=words)
    if second.frac >= NAMES_FRAC and second.frac >= RIVAL_FRAC * first.frac:
        return Decision(regime="mixed", because=f"{_words(first)} and {_words(second)}")
    if first.name == "per-op" and first.frac < CLEAR_PER_OP_FRAC:
        words = f"{_words(first)}, between {format_frac(NAMES_FRAC)} and {format_frac(CLEAR_PER_OP_FRAC)}"
        return Decision(regime="mixed", because=words)
    if first.regime == "cannot-tell":
        return Decision(
            regime="cannot-tell", because="unlinked-rows" if 2 * shares.unlinked_ns > first.ns else "unseen"
        )
    return Decision(regime=first.regime, because=_words(first) if first.regime == "mixed" else None)


def _words(share: Share) -> str:
    return f"{share.name} {format_frac(share.frac)} of the window"


_STARVED = frozenset(
    {"per-op", "loader", "first-time costs", "recurring allocator", "pauses", "computation on the host"}
)
"""The losses from which a wait's cost may have to be taken."""


def is_settled(shares: Shares, owed_ns: int) -> bool:
    """Whether the regime stays what it is however much of ``owed_ns`` goes from the host's losses to *synchronised*.

    A careful answer: what is not settled by it may still turn out the same.
    """
    owed = owed_ns / max(shares.window_ns, 1)
    low = {s.name: s.frac - (owed if s.name in _STARVED else 0.0) for s in shares.losses}
    high = {s.name: s.frac + (owed if s.name == "synchronised" else 0.0) for s in shares.losses}
    first, *others = shares.losses
    least, most = low[first.name], high[first.name]
    rival = max(high[other.name] for other in others)
    if most < NAMES_FRAC and rival < NAMES_FRAC:
        return True
    clear = least >= CLEAR_PER_OP_FRAC or most < CLEAR_PER_OP_FRAC or first.name != "per-op"
    return clear and least >= NAMES_FRAC and rival < max(NAMES_FRAC, RIVAL_FRAC * least)
