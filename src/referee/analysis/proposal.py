"""How is a remedy of a trace written down? What it could recover, per step where there are several."""

from __future__ import annotations

from referee.records.verdict import Remedy


def propose(
    name: str,
    attacks: str,
    how: str,
    *,
    high_ns: float | None,
    steps: int,
    basis: str,
    low_ns: float | None = 0,
) -> Remedy:
    """A remedy from bounds over the window; ``high_ns`` is ``None`` where only trying says what it gains."""
    per = ", per step" if steps > 1 else ", over the window"
    return Remedy(
        name=name,
        attacks=attacks,
        how=how,
        low_ns=None if low_ns is None else low_ns / steps,
        high_ns=None if high_ns is None else high_ns / steps,
        basis=basis if high_ns is None else f"{basis}{per}",
    )
