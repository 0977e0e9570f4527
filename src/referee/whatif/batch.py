"""How busy would the device be at another batch size? From two or more traces of the same code at other batch sizes."""

from __future__ import annotations

from collections.abc import Mapping

from referee.errors import OptionError
from referee.records.whatif import EditResult

NEAR = 4.0
"""Up to this many times the largest batch recorded the straight line holds to a tenth; beyond it kernels change."""
NEAR_FRAC = 0.1


def busy_at(batch: float, busy_ns: Mapping[float, float]) -> EditResult:
    """Device time at ``batch`` from the recorded ``busy_ns`` by batch size, as a range.

    The straight line through the two nearest sizes is the hopeful end: kernels that did not fill the chip grow late.
    The careful end is strict proportionality to the batch from the largest recorded size.
    Within :data:`NEAR` times the largest size the range is the line with a tenth on either side.
    """
    if len(busy_ns) < 2:
        raise OptionError("Another batch size needs traces of two batch sizes.", hint="Record one more.")
    if batch <= 0 or min(busy_ns) <= 0:
        raise OptionError("A batch size is above zero.")
    sizes = sorted(sorted(busy_ns, key=lambda size: abs(size - batch))[:2])
    low, high = sizes
    slope = max(0.0, (busy_ns[high] - busy_ns[low]) / (high - low))
    line_ns = busy_ns[low] + slope * (batch - low)
    largest = max(busy_ns)
    if batch <= NEAR * largest:
        ends = (line_ns * (1 - NEAR_FRAC), line_ns * (1 + NEAR_FRAC))
        point, basis = line_ns, f"straight line through batch {low:g} and {high:g}, a tenth on either side"
    else:
        ends = (line_ns, max(line_ns, busy_ns[largest] * batch / largest))
        point = (ends[0] * ends[1]) ** 0.5
        basis = (
            f"{batch / largest:.0f} times the largest size recorded: between the straight line and proportionality; "
            "record one nearer"
        )
    base = busy_ns[largest]
    return EditResult(
        name=f"device time at batch {batch:g}",
        step_ns=point,
        low_ns=ends[0],
        high_ns=ends[1],
        basis=basis,
        gain_low_frac=1 - ends[1] / base,
        gain_high_frac=1 - ends[0] / base,
    )
