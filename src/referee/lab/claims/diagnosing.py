"""What is claimed about diagnosing: utilisation, totals, gaps, the null experiment, the fixes."""

from __future__ import annotations

from math import inf

from referee.lab.claims.claim import US, Claim

FEW_NS = (1 * US, 10 * US)
"""A few microseconds."""

BARELY = 1.25
"""Eight times the batch: below this the step barely moves."""

SLOWER = 1.02
"""Slower, and not the same: 2 % is the least that counts."""

DIAGNOSING: tuple[Claim, ...] = (
    Claim(
        id="D1",
        claimed="nvidia-smi's utilisation is the share of a sampling period (1/6 to 1 s) in which any kernel was "
        "resident, copies not counted: a thousand tiny kernels read near 100 % on a handful of multiprocessors.",
        measures="share of the window with any kernel, over the same share weighted by the multiprocessors in use; the "
        "median over the recorded traces",
        low=1.05,
        high=inf,
        unit="ratio",
        teaches="A share of time with any kernel says that something ran, not that the GPU was full.",
        otherwise="In these traces the two shares agree: the kernels fill the device while they run.",
    ),
    Claim(
        id="D2",
        claimed="Diagnose in this order: look at a timeline (durations and gaps), compare self CPU with self CUDA "
        "totals, count kernels per step, run the null experiment, check the occupancy of each kernel.",
        measures="share of the recorded traces with device rows that answer all four questions which a single trace "
        "can be asked",
        low=-inf,
        high=inf,
        unit="frac",
        undecided="the claim advises an order, and how many files can answer its questions neither confirms nor "
        "refutes that: it takes cases of known cause, each diagnosed in this order and in others.",
        teaches="All of these questions have an answer in a trace: ask them.",
        otherwise="Record steps, shapes and occupancy, or a question of the list has no answer in the file.",
    ),
    Claim(
        id="D3",
        claimed="Gaps of a few µs between kernels are the mark of launch-bound execution; thousands of kernels with a "
        "median of a few µs are diagnostic alone.",
        measures="the median gap between kernels in those recorded traces that are launch-bound",
        low=FEW_NS[0],
        high=FEW_NS[1],
        unit="ns",
        teaches="Gaps of a few µs at every kernel are the pace of the host.",
        otherwise="Gaps and short kernels alone do not tell what limits a step: look at who waits for whom.",
        above="Python between operators, or the profiler's own part of each call",
    ),
    Claim(
        id="D4",
        claimed="If the CPU total exceeds the GPU total, the CPU is the critical path and work on kernels cannot help.",
        measures="of the recorded traces with more self CPU than device time and one regime, the share that the host "
        "limits (launch-, input- or sync-bound, or first-time costs)",
        low=1.0,
        high=1.0,
        unit="frac",
        teaches="Where the host total is the larger, look at the host first.",
        otherwise="Totals are a first hint: a host total that is larger does not make the host the limit.",
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
        otherwise="Here the batch size does not tell a step that is overhead from one that is work.",
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
        otherwise="Try each fix on the step in question and measure it: this order is not a law.",
    ),
    Claim(
        id="D7",
        claimed="A small model can be slower per sample on a faster GPU: the CPU sets the step, more multiprocessors "
        "idle, clocks sag, and the last partial wave costs a larger share.",
        measures="a 32 × 32 product on the device that is faster at a 4,096 × 4,096 product, over the other device",
        low=SLOWER,
        high=inf,
        unit="ratio",
        teaches="Where the CPU sets the step a faster GPU changes nothing.",
        otherwise="This small product gains from the faster GPU: measure before renting either.",
    ),
    Claim(
        id="D8",
        claimed="Report throughput per dollar at the batch size that will be served, on which it depends.",
        measures="samples per dollar of a small model at batch 256, over batch 1 (the price cancels)",
        low=1.1,
        high=inf,
        unit="ratio",
        teaches="Report it at the size that you will serve.",
        otherwise="Here the batch size does not change what a sample costs.",
    ),
)
