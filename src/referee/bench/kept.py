"""What have thousands of calls left behind? What a step keeps of earlier calls, and what has become of its state.

A step that keeps each call's graph or result holds more memory with every call, and may take longer. A state that was
data at first and has decayed to zero, or grown beyond all numbers, is not what was to be timed.
"""

from __future__ import annotations

from typing import Protocol

from referee.records.finding import Finding

_MOST_CALLS = 256
"""Of longer runs no more need to have left something: what goes round in a few hundred places is told from what is
kept for good."""

_LEFT_FRAC = 0.5
"""So much of what the calls together would have left must be there."""


class Values(Protocol):
    """Of how many tensors: all zero, not finite, subnormal (``referee.device.values``)."""

    @property
    def tensors(self) -> int:
        """How many were looked at."""

    @property
    def zero(self) -> int:
        """All zero."""

    @property
    def nan(self) -> int:
        """With NaN among them."""

    @property
    def infinite(self) -> int:
        """With infinities among them."""

    @property
    def subnormal(self) -> int:
        """With many subnormal numbers."""


class Kept(Protocol):
    """What a step held after a watched call, and what of it that call had added (``referee.device.kept``)."""

    @property
    def tensors(self) -> int:
        """Tensors held after the call."""

    @property
    def more_tensors(self) -> int:
        """Those that it had added."""

    @property
    def more_nodes(self) -> int:
        """Nodes of the autograd graph that it had added."""

    @property
    def graph_is_held(self) -> bool:
        """Whether what it had added to a graph is there still."""

    @property
    def values(self) -> Values:
        """What the tensors held then."""

    @property
    def state(self) -> Values:
        """The same without parameters."""

    def count_tensors(self) -> int:
        """Tensors held by now."""

    def values_now(self) -> tuple[Values, Values]:
        """What they hold by now, with parameters and without."""


def check_kept(seen: object, *, calls: int) -> tuple[Finding, ...]:
    """Is what a watched call added still there after ``calls`` further ones, and what the step carries still data?

    Looks at what the step holds once more, after the timing: ``seen`` is what was observed of it. A state that is let
    go every so many calls, as in a truncated backward, is none that is kept.
    """
    kept: Kept | None = getattr(seen, "kept", None)
    if kept is None or calls < 1:
        return ()
    return (*_grown(kept, calls=calls), *_degenerated(kept, calls=calls))


def _grown(kept: Kept, *, calls: int) -> tuple[Finding, ...]:
    if kept.more_nodes > 0 and kept.graph_is_held:
        return (_graph_held(kept.more_nodes, calls=calls),)
    if kept.more_tensors > 0:
        now = kept.count_tensors()
        if now >= kept.tensors + _LEFT_FRAC * min(calls, _MOST_CALLS) * kept.more_tensors:
            return (_tensors_kept(kept.more_tensors, now=now, calls=calls),)
    return ()


def _degenerated(kept: Kept, *, calls: int) -> tuple[Finding, ...]:
    """Has what the step carries from call to call become something else than data meanwhile?"""
    now, state = kept.values_now()
    if state.tensors and state.zero == state.tensors and kept.state.zero < kept.state.tensors:
        return (
            Finding(
                code="zero-inputs",
                severity="fatal",
                message=f"Everything that enters the step had become zero after {calls:,} calls: it carries a state "
                "that decays.",
                evidence={"tensors": state.tensors, "calls": calls},
                hint="Let each call begin with the same state.",
            ),
        )
    became = {
        "infinite or NaN": max(now.nan - kept.values.nan, now.infinite - kept.values.infinite),
        "subnormal": now.subnormal - kept.values.subnormal,
    }
    return tuple(
        Finding(
            code="odd-values",
            severity="warning",
            message=f"{count} of {now.tensors} tensors that the step holds became {what} while it was measured: "
            "computing with such values can take longer, or shorter, than with data.",
            evidence={"became": count, "tensors": now.tensors, "calls": calls},
            hint="Let each call begin with the same state, and see that it neither grows nor decays.",
        )
        for what, count in became.items()
        if count > 0
    )


def _graph_held(per_call: int, *, calls: int) -> Finding:
    return Finding(
        code="graph-held",
        severity="warning",
        message=f"Each call adds {per_call:,} node{'s' * (per_call > 1)} to an autograd graph that the step keeps, "
        f"with what they save for a backward pass: what one call added was still held {calls:,} calls later.",
        evidence={"nodes_per_call": per_call, "calls": calls},
        hint="Detach what goes from call to call (state.detach()); add up loss.detach() or loss.item().",
    )


def _tensors_kept(per_call: int, *, now: int, calls: int) -> Finding:
    return Finding(
        code="results-kept",
        severity="warning",
        message=f"Each call leaves {per_call:,} tensor{'s' * (per_call > 1)} that the step keeps: it holds {now:,} "
        f"after {calls:,} calls, and each call has to be given memory that was not used before.",
        evidence={"tensors_per_call": per_call, "tensors": now, "calls": calls},
        hint="Keep results outside of the step, or let the old ones go.",
    )
