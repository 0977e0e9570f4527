"""Does a long kernel make what stands around it dearer? A witness: another operator's node, by itself and behind it.

A kernel that reads and writes more than the caches hold, or runs much code, leaves them to the next call, which then
finds neither the dispatcher's tables nor the memory of its nodes at hand. The same is seen when a megabyte is written
between two small calls (the node of an ``exp`` took 420 ns, 570 behind a megabyte and 700 behind four).
"""

from __future__ import annotations

import math

from referee.anatomy.stages import KERNEL, Ladder, Subject
from referee.anatomy.timing import Cost, Pair, Timed
from referee.device.host import load_torch
from referee.records.finding import Finding
from referee.units import format_ns

NODE = "autograd node"


def behind_pairs(subject: Subject, ladder: Ladder) -> tuple[Pair, ...]:
    """The node of a small ``exp`` by itself and behind the kernel; none where no long kernel stands beside a node."""
    kernel = next((step.pair.upper for step in ladder.steps if step.layer == KERNEL), None)
    if kernel is None or not subject.scattered or all(step.pair.name != NODE for step in ladder.steps):
        return ()
    torch = load_torch()
    small = torch.rand(8, device=subject.outputs[0].device if subject.outputs else "cpu")

    def exp(tensor: object, after: Timed | None = None) -> Timed:
        names = {"w_exp": torch.exp, "w_x": tensor}
        if after is None:
            return Timed("w_exp(w_x)", names, subject.context)
        return Timed(f"{after.source}\nw_exp(w_x)", {**after.names, **names}, after.context)

    wanting = small.detach().requires_grad_()
    return (
        Pair("small node", exp(wanting), exp(small)),
        Pair("small node behind", exp(wanting, kernel), exp(small, kernel)),
    )


def judge_behind(costs: tuple[Cost, ...], kernel_ns: float) -> tuple[Finding, ...]:
    """The finding that the kernel makes the rows around it dearer, where the witness surely is."""
    if len(costs) != 2:
        return ()
    alone, behind = (cost.hot for cost in costs)
    unsure = math.hypot(behind.point - behind.low, alone.high - alone.point)  # the two are independent
    if behind.point - alone.point <= unsure:
        return ()
    return (
        Finding(
            code="dearer-behind-kernel",
            severity="info",
            message=f"The kernel takes {format_ns(kernel_ns)} and leaves the caches cold: the {NODE} of a small exp"
            f" takes {format_ns(behind.point)} behind it and {format_ns(alone.point)} by itself, so that the rows"
            " around it are dearer than those of a small call",
            evidence={
                "kernel_ns": kernel_ns,
                "behind_ns": behind.point,
                "behind_low_ns": behind.low,
                "behind_high_ns": behind.high,
                "alone_ns": alone.point,
                "alone_low_ns": alone.low,
                "alone_high_ns": alone.high,
            },
        ),
    )
