"""What is claimed? The list, each claim with the range in which its number must lie and what it teaches.

A claim states a number and the range of that number; whether it holds is found by the experiments, never written here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

US = 1_000.0
MS = 1_000_000.0
RESOLVED_NS = 10.0
"""A cost below this is lost in what a loop on this kind of machine can tell apart."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim. ``measures`` says what number is taken, ``low`` and ``high`` where it lies if the claim is true.

    ``below`` and ``above`` say what is likely the reason where the number lies outside.
    """

    id: str
    claimed: str
    measures: str
    low: float
    high: float
    unit: str
    teaches: str
    below: str = ""
    above: str = ""
    contradiction: str = ""

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The range as a record holds it: ``None`` where it is open."""
        return (None if self.low == -inf else self.low, None if self.high == inf else self.high)


PIPELINE_US = {
    "Python and the C boundary": (1.0, 2.0),
    "parsing and overloads": (0.5, 1.0),
    "keys and jump": (0.2, 0.5),
    "autograd node": (1.0, 2.0),
    "allocator hit": (0.3, 1.0),
    "shapes and strides": (0.5, 0.5),
    "launch": (2.0, 5.0),
}
"""The course's rows of one operator's call, in microseconds."""

PIPELINE_TOTAL_US = (5.0, 10.0)
LAYER_OPS, LAYERS, BACKWARD_TIMES = (50, 150), 32, 3
STEP_OPS = (2_000, 5_000)


def _pipeline_sum() -> str:
    low, high = (sum(row[side] for row in PIPELINE_US.values()) for side in (0, 1))
    return (
        f"The rows add to {low:.3g} to {high:.3g} µs, the total is given as {PIPELINE_TOTAL_US[0]:.3g} to "
        f"{PIPELINE_TOTAL_US[1]:.3g} µs."
    )


def _layer_product() -> str:
    low, high = (ops * LAYERS * BACKWARD_TIMES for ops in LAYER_OPS)
    return (
        f"{LAYER_OPS[0]} to {LAYER_OPS[1]} operators × {LAYERS} layers × {BACKWARD_TIMES} gives {low:,} to {high:,}, "
        f"not {STEP_OPS[0]:,} to {STEP_OPS[1]:,}."
    )


def _without_launch_ns(side: int) -> float:
    return US * sum(row[side] for name, row in PIPELINE_US.items() if name != "launch")


CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="M1",
        claimed="On a CPU, stopping the clock right after an operator measures the operator.",
        measures="time without waiting / time settled",
        low=0.95,
        high=1.05,
        unit="ratio",
        teaches="Where calls are synchronous a plain timer is right; it is the device that decides, not the code.",
        below="calls return before their work is done: this device is not synchronous",
    ),
    Claim(
        id="M2",
        claimed="On CUDA an unsynchronised clock measures enqueueing, not execution.",
        measures="live: time without waiting / settled; recorded: share of kernels still unfinished when their launch "
        "call returned",
        low=0.9,
        high=1.0,
        unit="frac",
        teaches="Returning from a call says that work was queued; synchronise before the clock stops.",
        below="calls block here: launches that wait, or a queue that is full",
    ),
    Claim(
        id="M3",
        claimed="On a lazy backend a timer without a sync point sees almost none of the work.",
        measures="time without waiting / time settled",
        low=0.0,
        high=0.1,
        unit="frac",
        teaches="Recording is not running: materialise this candidate's own outputs, and wait.",
        above="recording costs as much as running: the work is small beside the bookkeeping",
    ),
    Claim(
        id="M4",
        claimed="Calls back to back with one wait at the end spread the fixed costs thin.",
        measures="time settled after each call / time amortised over many",
        low=1.0,
        high=inf,
        unit="ratio",
        teaches="One call alone pays for the clock, the wait and cold code; many share that.",
        below="single calls are not dearer here",
    ),
    Claim(
        id="M5",
        claimed="Linear(512, 512) on (64, 512) in float32 took 0.142 ms a call on the author's CPU.",
        measures="one call here, one thread",
        low=0.142 * MS * 0.9,
        high=0.142 * MS * 1.1,
        unit="ns",
        teaches="A time without its chip is not portable: the same line takes another time here.",
        below="a faster chip, or more of it",
        above="a slower chip, one thread instead of several, or other work beside it",
    ),
    Claim(
        id="M6",
        claimed="The profiler puts host work and device kernels on one timeline.",
        measures="share of device rows whose launch is in the same file, before or at their start",
        low=0.95,
        high=1.0,
        unit="frac",
        teaches="Cause and effect can be read off one picture, as long as both sides were recorded.",
        below="launches were not recorded, or the two clocks are apart",
    ),
    Claim(
        id="M7",
        claimed="The first steps pay costs that the steady state does not: a schedule leaves them out.",
        measures="first call / steady call",
        low=1.2,
        high=inf,
        unit="ratio",
        teaches="Warm up until the series is steady, then record.",
        below="everything was paid before: an earlier run in this process, or nothing to pay",
    ),
    Claim(
        id="M8",
        claimed="Autocast runs matmuls and convolutions in low precision and keeps reductions and sensitive "
        "operators in float32.",
        measures="share of the operators tried that do so on this device",
        low=1.0,
        high=1.0,
        unit="frac",
        teaches="Autocast follows a list for each device, not a principle: look at what it did to your model.",
        below="the device's own list is shorter: what is on none runs in the dtype of its inputs",
    ),
    Claim(
        id="M9",
        claimed="In fp16 small gradients become zero, and scaling the loss saves them.",
        measures="share of the gradients lost at scale 1 that a scale of 2^16 saves",
        low=0.99,
        high=1.0,
        unit="frac",
        teaches="Scale the loss before backward and unscale before the step.",
        below="they are too small even so, or none was lost",
    ),
    Claim(
        id="M10",
        claimed="bf16 has float32's range, so it needs no scaler.",
        measures="share of the same gradients that become zero in bf16",
        low=0.0,
        high=0.0,
        unit="frac",
        teaches="bf16 loses digits, not range.",
        above="something flushes subnormal numbers to zero",
    ),
    Claim(
        id="M11",
        claimed="A number without chip, dtype, shapes and method is not a measurement.",
        measures="share of attempts to build one without provenance that are refused",
        low=1.0,
        high=1.0,
        unit="frac",
        teaches="Write down where a number comes from, or do not show it.",
        below="a number can be built without its provenance",
    ),
    Claim(
        id="E1",
        claimed="The CPU side of one operator takes 5 to 10 µs, 2 to 5 of them the launch.",
        measures="one small add amid other operators, without a launch; held against the rows without the launch",
        low=_without_launch_ns(0),
        high=_without_launch_ns(1),
        unit="ns",
        teaches="An eager operator costs microseconds before anything is computed.",
        below="today's dispatcher and argument parser are faster than the course's",
        above="this core is slower, or shared with other work",
        contradiction=_pipeline_sum(),
    ),
    Claim(
        id="E2",
        claimed="A small elementwise kernel takes 2 to 4 µs of GPU time.",
        measures="median elementwise kernel of the recorded traces",
        low=2 * US,
        high=4 * US,
        unit="ns",
        teaches="Behind each small operator the GPU works less long than the CPU.",
        below="newer devices are faster",
        above="these kernels work on more data than a small operator's",
    ),
    Claim(
        id="E3",
        claimed="A thousand operators cost about 8 ms of CPU whatever the tensors' size.",
        measures="a thousand small operators",
        low=6 * MS,
        high=10 * MS,
        unit="ns",
        teaches="Count operators: below some size they cost their number, not their work.",
        below="no launches here, and a faster dispatcher",
        above="a slower core, or one that is shared",
    ),
    Claim(
        id="E4",
        claimed="A transformer layer's forward is about 50 to 150 operators.",
        measures="operators below autograd in one forward of an encoder layer",
        low=50,
        high=150,
        unit="operators",
        teaches="Count what your own model issues; a fused attention is one operator.",
        below="attention, linear and norm are one operator each today",
        above="attention is spelled out here",
        contradiction=_layer_product(),
    ),
    Claim(
        id="E5",
        claimed="Backward runs about twice the operators of forward.",
        measures="operators of backward / of forward",
        low=1.5,
        high=2.5,
        unit="ratio",
        teaches="A training step is about three forwards.",
        below="backward has fused operators of its own",
        above="gradients are accumulated and summed one by one",
    ),
    Claim(
        id="E6",
        claimed="GPU time dominates a single operator only from about 1 to 4 million elements.",
        measures="elements at which device time equals host time",
        low=1e6,
        high=4e6,
        unit="elements",
        teaches="Small tensors are host-bound on any GPU.",
    ),
    Claim(
        id="E7",
        claimed="cudaLaunchKernel costs at least about 2 µs.",
        measures="median launch call of the recorded traces",
        low=2 * US,
        high=inf,
        unit="ns",
        teaches="A launch has a price that no kernel can be too small to pay.",
        below="a faster driver or core",
    ),
    Claim(
        id="E8",
        claimed="The same code is in a different regime at another batch size.",
        measures="batch size at which work overtakes overhead, in a sweep from 1 to 1,024",
        low=1.0,
        high=1024.0,
        unit="samples",
        teaches="Sweep the batch size: one point cannot show what the time depends on.",
    ),
    Claim(
        id="E9",
        claimed="Kernels are picked by priority: autocast above autograd, autograd above the backend.",
        measures="share of these orders found in the path of a matmul under autocast",
        low=1.0,
        high=1.0,
        unit="frac",
        teaches="Modes compose because each is a layer that passes the call on.",
        below="the dispatcher visits them in another order",
    ),
    Claim(
        id="E10",
        claimed="Under autocast and autograd an operator is dispatched several times before its kernel.",
        measures="kernels that a matmul visits on its way",
        low=2.0,
        high=inf,
        unit="kernels",
        teaches="Each layer costs a jump of its own.",
        below="one kernel takes it all",
    ),
    Claim(
        id="E11",
        claimed="Autograd makes a node for every differentiable operator, whether or not backward runs.",
        measures="nodes per operator after a forward alone",
        low=1.0,
        high=1.0,
        unit="nodes",
        teaches="Without no_grad an inference builds a tape that nobody reads.",
        below="operators were fused or not recorded",
        above="operators are composites of several",
    ),
    Claim(
        id="E12",
        claimed="matmul saves both inputs, relu can save only its output, no_grad saves nothing.",
        measures="share of these that are found on the tape",
        low=1.0,
        high=1.0,
        unit="frac",
        teaches="Saved tensors are the activation memory.",
        below="what an operator saves has changed",
    ),
    Claim(
        id="E13",
        claimed="In-place operators bump a version counter, and backward detects a mutated saved tensor.",
        measures="share of these that are seen",
        low=1.0,
        high=1.0,
        unit="frac",
        teaches="Autograd refuses rather than compute a wrong gradient.",
        below="a mutation went unseen",
    ),
    Claim(
        id="E14",
        claimed="Inference without no_grad pays 10 to 30 % of the step.",
        measures="time with a tape / without, less 1, of a small model",
        low=0.10,
        high=0.30,
        unit="frac",
        teaches="Say that you want no gradient.",
        below="the work is large beside the tape",
        above="the work is small beside the tape",
    ),
    Claim(
        id="E15",
        claimed="inference_mode also skips version counters; its tensors cannot be saved for backward later.",
        measures="share of: no version counter, w + t works, w * t is refused, a clone works",
        low=1.0,
        high=1.0,
        unit="frac",
        teaches="inference_mode is for tensors that never meet autograd again.",
        below="today's rules differ",
    ),
    Claim(
        id="E16",
        claimed="A graph compiled ahead of time leaves no tape of single operators.",
        measures="nodes that the compiled function leaves, besides accumulation",
        low=0.0,
        high=1.0,
        unit="nodes",
        teaches="A compiled graph is one node to autograd.",
        above="the graph broke into several",
    ),
    Claim(
        id="E17",
        claimed="Three losses are recoverable: per-operator overhead, memory traffic, allocator work.",
        measures="share of the window that could be recovered, of the recorded traces",
        low=0.01,
        high=1.0,
        unit="frac",
        teaches="Price each loss before you mend it.",
        below="these steps leave little to recover",
    ),
    Claim(
        id="E18",
        claimed="Eager mode makes one allocator request per intermediate.",
        measures="requests per operator of a chain",
        low=1.0,
        high=1.0,
        unit="requests",
        teaches="out= and planned memory save requests.",
        below="results went into memory that was there",
        above="operators also need scratch memory",
    ),
    Claim(
        id="E19",
        claimed="An operator costs more amid other operators than in a hot loop.",
        measures="an add amid a mix / in a loop of its own",
        low=1.05,
        high=inf,
        unit="ratio",
        teaches="A micro-benchmark's loop flatters: use the cold figure for a model.",
        below="code and tables stay in the caches here",
    ),
    Claim(
        id="E20",
        claimed="The cost of finding the key set grows with the number of tensor arguments.",
        measures="what one more tensor argument adds to a call on one element, its parsing and set-up included "
        "(addcmul against neg)",
        low=RESOLVED_NS,
        high=inf,
        unit="ns",
        teaches="Every tensor argument is looked at on every call.",
        below="it is lost in the noise",
    ),
    Claim(
        id="E21",
        claimed="Saved tensors are shared pointers: keeping them costs.",
        measures="what saving two tensors adds to an operator (mul against add, both with a tape)",
        low=RESOLVED_NS,
        high=inf,
        unit="ns",
        teaches="Each saved tensor is counted up and down.",
        below="it is lost in the noise",
    ),
    Claim(
        id="D1",
        claimed="nvidia-smi's utilisation reads near 100 % on a handful of multiprocessors.",
        measures="share of time with any kernel / share weighted by multiprocessors, of the recorded traces",
        low=1.05,
        high=inf,
        unit="ratio",
        teaches="Any kernel is not every multiprocessor.",
        below="these kernels fill the device",
    ),
    Claim(
        id="D2",
        claimed="Look at the timeline, the self totals, the kernels per step, the null experiment, the occupancy.",
        measures="share of these questions that the recorded traces answer",
        low=0.8,
        high=1.0,
        unit="frac",
        teaches="Ask in this order; a trace that lacks an answer says so.",
        below="what was recorded lacks shapes, steps or launches; the null experiment needs several batch sizes",
    ),
    Claim(
        id="D3",
        claimed="Thousands of kernels with a median of a few µs and gaps of a few µs mark launch-bound execution.",
        measures="median gap between kernels in those recorded traces that are launch-bound",
        low=1 * US,
        high=10 * US,
        unit="ns",
        teaches="Gaps that repeat at every kernel are the host's pace.",
        below="the device hardly waits",
        above="the host needs more per kernel than a bare launch: Python between operators",
    ),
    Claim(
        id="D4",
        claimed="If the CPU total exceeds the GPU total, the CPU is the critical path.",
        measures="share of the recorded traces with more self CPU than device time that are not compute-bound",
        low=1.0,
        high=1.0,
        unit="frac",
        teaches="Totals are a first hint: a host that runs ahead is busy and yet not the limit.",
        below="hosts that run ahead, wait, or were slowed by the profiler have large totals too",
    ),
    Claim(
        id="D5",
        claimed="Raise the batch size: if the step barely moves it was overhead-bound.",
        measures="time at batch 8 / at batch 1 of a small model",
        low=0.8,
        high=1.25,
        unit="ratio",
        teaches="Eight times the work in the same time: it was not the work that took it.",
        above="the work already counts at these sizes",
    ),
    Claim(
        id="D6",
        claimed="Against launch-bound code help torch.compile, CUDA graphs and larger batches, in this order.",
        measures="gain of each on a launch-bound step",
        low=1.0,
        high=inf,
        unit="ratio",
        teaches="Try them in this order, and measure each.",
    ),
    Claim(
        id="D7",
        claimed="A small model can be slower per sample on a faster GPU.",
        measures="time per sample on two devices",
        low=1.0,
        high=inf,
        unit="ratio",
        teaches="Where the CPU sets the step a faster GPU changes nothing.",
    ),
    Claim(
        id="D8",
        claimed="Throughput per dollar depends on the batch size that will be served.",
        measures="items per dollar at batch 256 / at batch 1",
        low=1.1,
        high=inf,
        unit="ratio",
        teaches="Report it at the size that you will serve.",
        below="every item costs the same at any batch size",
    ),
)

BY_ID: dict[str, Claim] = {claim.id: claim for claim in CLAIMS}
