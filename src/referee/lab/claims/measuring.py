"""What is claimed about measuring: clocks, warm-up, precision, provenance."""

from __future__ import annotations

from math import inf

from referee.lab.claims.claim import MS, Claim

ENDED_FRAC = 0.9
"""Nearly all: of what a synchronise awaited, so much must have ended."""

COURSE_NS = 0.142 * MS
"""What the course's layer took on its author's CPU."""

MEASURING: tuple[Claim, ...] = (
    Claim(
        id="M1",
        claimed="On a CPU, stopping the clock right after an operator measures the operator.",
        measures="what a timer that does not wait shows, over the settled time, of a 256 × 256 matrix product",
        low=0.95,
        high=1.05,
        unit="ratio",
        teaches="Where calls are synchronous a plain timer is right; it is the device that decides, not the code.",
        otherwise="A plain timer misleads here: wait for the result before the clock stops.",
        below="calls return before their work is done: this device is not synchronous",
    ),
    Claim(
        id="M2",
        claimed="On CUDA an unsynchronised clock measures enqueueing, not execution; one synchronise before stopping "
        "mends it.",
        measures="the share of the settled time that a timer without a wait misses",
        measures_recorded="the share of kernels still unfinished when the call that launched them had returned",
        low=0.9,
        high=1.0,
        unit="frac",
        teaches="Returning from a call says that work was queued; synchronise before the clock stops.",
        otherwise="Here a call returns late, or one synchronise is not enough: see which figure differs before a "
        "timer is trusted.",
        below="calls block here: launches that wait, or a queue that is full",
    ),
    Claim(
        id="M3",
        claimed="XLA's tensors are lazy: a timer without a sync point sees almost none of the work.",
        measures="what a timer that does not wait shows, over the settled time, of a 256 × 256 matrix product",
        low=0.0,
        high=0.1,
        unit="frac",
        teaches="Recording is not running: materialise this candidate's own outputs, and wait.",
        otherwise="Here recording takes a good part of the time: even so, wait for this candidate's own outputs.",
        above="recording costs as much as running: the work is small beside the bookkeeping",
    ),
    Claim(
        id="M4",
        claimed="Warm up off the clock, call n times back to back (n = 50 in the course's harness), synchronise once "
        "at the end, divide by n: dispatch overhead spreads thin.",
        measures="one small add settled after each call, over the same add amortised over many calls",
        low=1.02,
        high=inf,
        unit="ratio",
        teaches="One call alone pays for the clock, the wait and its dispatch; many share that.",
        otherwise="Blocks of calls take the clock and the settling off the number, not what each call costs by itself.",
    ),
    Claim(
        id="M5",
        claimed="Linear(512, 512) on (64, 512) in float32 took 0.142 ms a call on the author's CPU.",
        measures="one call here, with as many threads as the head of this page says",
        low=COURSE_NS * 0.9,
        high=COURSE_NS * 1.1,
        unit="ns",
        teaches="The chip here is about as fast at this as the author's.",
        otherwise="A time without its chip is not portable: the same line takes another time here.",
        below="a faster chip, or more threads: the course states neither of the author's, so that no more can be told",
        above="a slower chip, or fewer threads: the course states neither of the author's, so that no more can be told",
    ),
    Claim(
        id="M6",
        claimed="The profiler puts host work and device kernels on one timeline.",
        measures="share of device rows whose launch is in the same file, before or at their start",
        low=0.95,
        high=1.0,
        unit="frac",
        teaches="Cause and effect can be read off one picture, as long as both sides were recorded.",
        otherwise="These files do not show cause and effect together: look whether launches were recorded.",
        below="launches were not recorded, or the two clocks are apart",
    ),
    Claim(
        id="M7",
        claimed="A schedule (wait, warm-up, active) captures the steady state and leaves out the first steps, which "
        "every loop pays once; profiling every step would skew the run.",
        measures="the first training step of a new model (one value, n = 1), over a steady one, whose interval it is",
        low=1.2,
        high=inf,
        unit="ratio",
        teaches="Warm up until the series is steady, then record.",
        otherwise="Here one of the two costs nothing that counts: look which before steps are left out.",
        below="everything was paid before: an earlier run in this process, or nothing to pay",
    ),
    Claim(
        id="M8",
        claimed="Autocast runs matmuls and convolutions in the low-precision dtype and keeps reductions and other "
        "sensitive operators in float32.",
        measures="share of seven operators that do so on this device: mm and conv2d low; sum, softmax, layer_norm, "
        "mse_loss and exp, given bfloat16, in float32",
        low=1.0,
        high=1.0,
        unit="frac",
        teaches="Autocast does what the course says here.",
        otherwise="Autocast follows a list for each device, not a principle: look at what it did to your model.",
    ),
    Claim(
        id="M9",
        claimed="In fp16 small gradients underflow to exactly zero; scaling the loss up before backward and unscaling "
        "before the step saves them (GradScaler).",
        measures="of ten thousand gradients from 2^-40 to 2^-26, the share of those lost in fp16 that scaling by 2^16 "
        "saves",
        low=0.99,
        high=1.0,
        unit="frac",
        teaches="Gradients that are scaled up before they are rounded to fp16 survive it.",
        otherwise="One scale does not save these gradients: look at how small they are.",
        below="they are too small even so, or none was lost",
    ),
    Claim(
        id="M10",
        claimed="bf16 has float32's exponent range with less mantissa, so it needs no scaler; it is the native dtype "
        "of the TPU path.",
        measures="of ten thousand gradients from 2^-40 to 2^-26, the share that becomes zero in bf16",
        low=0.0,
        high=0.0,
        unit="frac",
        teaches="bf16 loses digits, not range.",
        otherwise="Look at what bf16 does to numbers of this size before it is used without a scaler.",
        above="something flushes subnormal numbers to zero",
    ),
    Claim(
        id="M11",
        claimed="A number without chip, dtype, shapes and method is not a measurement.",
        measures="share of seven attempts to record a number without its provenance, or without a part of it, that "
        "Referee's own record of a measurement refuses",
        low=1.0,
        high=1.0,
        unit="frac",
        teaches="Write down where a number comes from, or do not show it.",
        otherwise="This recorder does not keep the rule: do not trust a number without its provenance.",
        below="a number can be built without its provenance",
    ),
)
