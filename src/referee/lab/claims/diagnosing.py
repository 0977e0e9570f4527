"""What is claimed about diagnosing: utilisation, totals, gaps, the null experiment, the fixes."""

from __future__ import annotations

from math import inf

from referee.lab.claims.claim import US, Claim

FEW_NS = (1 * US, 10 * US)
"""A few microseconds."""

BARELY = 1.25
"""Eight times the batch: below this the step barely moves."""

DIAGNOSING: tuple[Claim, ...] = (
    Claim(
        id="D1",
        claimed="nvidia-smi's utilisation is the share of a sampling period (1/6 to 1 s) in which any kernel was "
        "resident, copies not counted: a thousand tiny kernels read near 100 % on a handful of multiprocessors.",
        measures="share of the window with any kernel, over the share weighted by multiprocessors in use, in the "
        "recorded traces",
        low=1.05,
        high=inf,
        unit="ratio",
        teaches="High utilisation says that something ran, not that the GPU was full: look at the weighted share.",
        below="these kernels fill the device",
    ),
    Claim(
        id="D2",
        claimed="Diagnose in this order: look at a timeline (durations and gaps), compare self CPU with self CUDA "
        "totals, count kernels per step, run the null experiment, check the occupancy of each kernel.",
        measures="share of the four questions a single trace can be asked that the recorded traces answer",
        low=1.0,
        high=1.0,
        unit="frac",
        teaches="Ask in this order; a trace that lacks an answer says so.",
        below="traces without steps, without operators or without occupancy, which not every profiler records",
    ),
    Claim(
        id="D3",
        claimed="Gaps of a few µs between kernels are the mark of launch-bound execution; thousands of kernels with a "
        "median of a few µs are diagnostic alone.",
        measures="the median gap between kernels in those recorded traces that are launch-bound",
        low=FEW_NS[0],
        high=FEW_NS[1],
        unit="ns",
        teaches="Gaps that repeat at every kernel are the host's pace.",
        below="the device hardly waits",
        above="the host needs more per kernel than a bare launch: Python between operators",
    ),
    Claim(
        id="D4",
        claimed="If the CPU total exceeds the GPU total, the CPU is the critical path and work on kernels cannot help.",
        measures="of the recorded traces with more self CPU than device time, the share that is not compute-bound",
        low=1.0,
        high=1.0,
        unit="frac",
        teaches="Totals are a first hint: a host that runs ahead is busy and yet not the limit.",
        below="hosts that run ahead, wait, or were slowed by the profiler have large totals too",
    ),
    Claim(
        id="D5",
        claimed="The null experiment: raise the batch size; if the step barely moves it was launch-bound (on a CPU: "
        "overhead-bound).",
        measures="the time of four small linear layers with relu at batch 8, over that at batch 1",
        low=0.8,
        high=BARELY,
        unit="ratio",
        teaches="Eight times the work in the same time: it was not the work that took it.",
        above="the work already counts at these sizes",
    ),
    Claim(
        id="D6",
        claimed="Fixes for launch-bound code in order of leverage: torch.compile, CUDA graphs, larger batches.",
        measures="share of four checks on a launch-bound step that come out so: each of the three helps, and in this "
        "order",
        low=1.0,
        high=1.0,
        unit="frac",
        teaches="Try them in this order, and measure each.",
        below="one of them does not help this step, or the order is another one here",
    ),
    Claim(
        id="D7",
        claimed="A small model can be slower per sample on a faster GPU: the CPU sets the step, more multiprocessors "
        "idle, clocks sag, and the last partial wave costs a larger share.",
        measures="a 32 × 32 product on the device that is faster at a 4,096 × 4,096 product, over the other device",
        low=1.0,
        high=inf,
        unit="ratio",
        teaches="Where the CPU sets the step a faster GPU changes nothing.",
        below="the faster device is faster on small work too",
    ),
    Claim(
        id="D8",
        claimed="Report throughput per dollar at the batch size that will be served, on which it depends.",
        measures="samples per dollar of a small model at batch 256, over batch 1 (the price cancels)",
        low=1.1,
        high=inf,
        unit="ratio",
        teaches="Report it at the size that you will serve.",
        below="every item costs the same at any batch size",
    ),
)
