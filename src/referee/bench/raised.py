"""What did the user's code raise, in a line? And the finding where something measured before it is kept."""

from __future__ import annotations

from referee.records.finding import Finding

_MESSAGE_LENGTH = 200
"""A compiler's whole log does not fit into a finding."""


def describe_error(error: BaseException) -> str:
    """``ValueError: shapes differ``: the kind and the text in one line, shortened."""
    text = " ".join(str(error).split())[:_MESSAGE_LENGTH]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def step_raised(
    error: BaseException, *, blocks: int, where: str = "in a later call", number: str = "number"
) -> Finding:
    """The finding for a step that raised once there was something to keep."""
    described = describe_error(error)
    return Finding(
        code="step-raised",
        severity="warning",
        message=f"The step raised {described.rstrip('.')} {where}. The {number} stands on what counts of "
        f"the {blocks:,} blocks before that.",
        evidence={"blocks": blocks, "error": described},
        hint="A step is called thousands of times: let it take its data again and again.",
    )
