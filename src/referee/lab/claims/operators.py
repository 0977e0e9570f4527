"""What is claimed about one operator: its call, its dispatch, its tape, its memory."""

from __future__ import annotations

from math import inf

from referee.lab.claims.claim import MORE_THAN_NOTHING, MS, US, Claim

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

ROUNDED_US = 0.05
"""A row that the course gives as one figure is whatever rounds to that."""

PIPELINE_TOTAL_US = (5.0, 10.0)
DISPATCH_NS = (200.0, 500.0)
"""What the course says one dispatch costs."""

GRAPH_NS = (1 * US, 2 * US)
"""What the course says replaying a whole captured graph costs."""

REFERENCES = "reference to a saved tensor"
"""The group of variants in the anatomy that copies references from one thread and from two."""

CONTENTION_NS = 1.0
"""The least that counts as dearer with two threads: what starting the threads adds to each copy is less."""

RECOVERABLE = (0.01, 1.0)
"""Of the window: a loss below a hundredth is not there to be recovered."""

TAPE_FRAC = (0.10, 0.30)
"""What the course says a tape costs of the step."""

THOUSAND = 1_000
COURSE_EACH_US = 8.0
"""What the course has for each of a thousand operators: 8 ms for all."""

AT_ONCE_FRAC = 0.5
"""So much of the second thread's copying must run beside the first's: threads in turn contend for nothing."""

LAYER_OPS, LAYERS, BACKWARD_TIMES = (50, 150), 32, 3
STEP_OPS = (2_000, 5_000)
STEP_MS = (10, 40)
"""What the course says such a step costs eager mode in CPU time."""


def _pipeline_sum() -> str:
    low, high = (sum(row[side] for row in PIPELINE_US.values()) for side in (0, 1))
    (least, most), launch = PIPELINE_TOTAL_US, PIPELINE_US["launch"]
    without = [_without_launch_ns(side) / US for side in (0, 1)]
    return (
        f"The rows add to {low:.2g} to {high:.2g} µs, the total is given as {least:.3g} to {most:.3g} µs. Without the "
        f"launch the rows add to {without[0]:.2g} to {without[1]:.2g} µs, and the total less the launch is "
        f"{least - launch[0]:.3g} to {most - launch[1]:.3g} µs."
    )


def _layer_product() -> str:
    low, high = (ops * LAYERS * BACKWARD_TIMES for ops in LAYER_OPS)
    return (
        f"{LAYER_OPS[0]} to {LAYER_OPS[1]} operators × {LAYERS} layers × {BACKWARD_TIMES} gives {low:,} to {high:,}, "
        f"not {STEP_OPS[0]:,} to {STEP_OPS[1]:,}. And {STEP_OPS[0]:,} to {STEP_OPS[1]:,} operators at "
        f"{PIPELINE_TOTAL_US[0]:.3g} to {PIPELINE_TOTAL_US[1]:.3g} µs each take {_step_ms(0):.3g} to {_step_ms(1):.3g} "
        f"ms, not {STEP_MS[0]} to {STEP_MS[1]}."
    )


def _step_ms(side: int) -> float:
    return STEP_OPS[side] * PIPELINE_TOTAL_US[side] * US / MS


def _dispatch_sum() -> str:
    row, (low, high) = PIPELINE_US["keys and jump"], (ns / US for ns in DISPATCH_NS)
    return (
        f"Several dispatches at {low:.1g} to {high:.1g} µs each are more than the {row[0]:.1g} to {row[1]:.1g} µs that "
        f"E1 has for all keys and jumps of an operator: three make {3 * low:.1g} to {3 * high:.2g} µs."
    )


def _without_launch_ns(side: int) -> float:
    return US * sum(row[side] for name, row in PIPELINE_US.items() if name != "launch")


OPERATORS: tuple[Claim, ...] = (
    Claim(
        id="E1",
        claimed="One operator costs a modern server core 5 to 10 µs: Python bytecode and C boundary 1 to 2, argument "
        "parsing and overloads 0.5 to 1, key computation and jump 0.2 to 0.5, autograd node and tape 1 to 2, allocator "
        "hit 0.3 to 1, shapes, strides and broadcast 0.5, cudaLaunchKernel 2 to 5.",
        measures="the whole call of one small add with a tape, amid other operators; and each stage of it by itself",
        low=_without_launch_ns(0),
        high=_without_launch_ns(1),
        unit="ns",
        teaches="At every operator so much time goes by before anything is computed.",
        otherwise="Measure what an operator costs on the machine in question: the course's figures are not this "
        "machine's.",
        below="a faster core, or a later torch, than the course's",
        above="a slower core, or one that is shared with other work",
        contradiction=_pipeline_sum(),
    ),
    Claim(
        id="E2",
        claimed="A small elementwise kernel takes 2 to 4 µs of GPU time behind the 5 to 10 µs of its call.",
        measures="the median duration of the small elementwise kernels in the recorded traces: those with no more "
        "blocks than the device has multiprocessors",
        low=2 * US,
        high=4 * US,
        unit="ns",
        teaches="A small operator's kernel takes a few µs on these devices.",
        otherwise="Look at the durations on the device in question: the course's figure is not these devices'.",
        below="a faster device, or times that were recorded in whole microseconds",
    ),
    Claim(
        id="E3",
        claimed="A thousand operators cost about 8 ms of CPU per forward pass, whatever the tensors' size.",
        measures="the time of a chain of a thousand adds on 16 elements",
        low=THOUSAND * (COURSE_EACH_US - PIPELINE_US["launch"][1]) * US,
        high=THOUSAND * (COURSE_EACH_US - PIPELINE_US["launch"][0]) * US,
        unit="ns",
        teaches="Count operators: below some size they cost their number, not their work.",
        otherwise="Take the time of an operator from the machine in question, and multiply by their number.",
        below="a faster core, or a later torch, than the course's",
        above="a slower core, or one that is shared",
    ),
    Claim(
        id="E4",
        claimed="A transformer layer's forward is about 50 to 150 operators unfused; a 32-layer model's step is about "
        "2,000 to 5,000 with backward, which takes eager mode 10 to 40 ms of CPU.",
        measures="operators below autograd in one forward of an encoder layer whose attention is spelled out",
        low=50,
        high=150,
        unit="operators",
        teaches="Count what your own model issues; a fused attention is one operator.",
        otherwise="Count what your own model issues: how attention is written alone changes the count.",
        contradiction=_layer_product(),
    ),
    Claim(
        id="E5",
        claimed="Backward runs about twice the operators of forward.",
        measures="operators of the backward of an encoder layer, over those of its forward",
        low=1.5,
        high=2.5,
        unit="ratio",
        teaches="A training step issues the operators of about three forwards.",
        otherwise="Count the operators of backward; a fixed factor misleads.",
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
        teaches="An operator on fewer elements than that is limited by the host.",
        otherwise="Find the size for the GPU in question; the course's is another one's.",
    ),
    Claim(
        id="E7",
        claimed="cudaLaunchKernel costs at least about 2 µs; replaying a captured graph costs 1 to 2 µs in all.",
        measures="the median duration, as recorded, of the calls that launched one kernel; and of those that launched "
        "a graph",
        low=2 * US,
        high=inf,
        unit="ns",
        teaches="A launch has a price that no kernel can be too small to pay; a graph pays it once.",
        otherwise="Measure both calls on the machine in question: the course's figures are not these.",
    ),
    Claim(
        id="E8",
        claimed="A step takes the larger of operators × CPU time each and the sum of device times, so the same code is "
        "in another regime at another batch size: one batch size is close to useless as a benchmark.",
        measures="how much of a growth of the batch shows in the time of six linear layers: from 256 to 1,024, less "
        "from 1 to 4 (1 = all of it, 0 = nothing)",
        low=0.5,
        high=inf,
        unit="frac",
        teaches="Sweep the batch size: one point cannot show what the time depends on.",
        otherwise="Here one regime covers all of these batch sizes; only the sweep could show that.",
        below="one regime all along: overhead at every size, or work at every size",
    ),
    Claim(
        id="E9",
        claimed="The dispatcher picks a kernel from the union of the arguments' key sets, plus thread-local includes, "
        "minus excludes, by priority: autocast above autograd, autograd above the backend; functionalisation, "
        "subclasses and FakeTensor hook in the same way; AMP, compile and a subclass compose.",
        measures="share of nine checks that come out so: the union, an exclude, the two orders of a matmul's path, and "
        "autocast together with a dispatch mode (an include), a FakeTensor, a subclass and torch.compile, and "
        "functionalisation",
        low=1.0,
        high=1.0,
        unit="frac",
        teaches="Each of these is a layer that passes the call on, so that several work together.",
        otherwise="Ask the dispatcher for the path of a call (referee anatomy OP); do not deduce it.",
    ),
    Claim(
        id="E10",
        claimed="Under autocast and autograd an operator is dispatched several times before its kernel, at 0.2 to 0.5 "
        "µs each.",
        measures="kernels that a matmul visits on its way; the cost of one dispatch beside it",
        low=2.0,
        high=inf,
        unit="kernels",
        teaches="Each layer on the way costs a jump of its own.",
        otherwise="Count the kernels on the path and time one: neither follows from the other.",
        contradiction=_dispatch_sum(),
    ),
    Claim(
        id="E11",
        claimed="Autograd allocates a node and its edges for every differentiable operator during forward, whether or "
        "not backward runs.",
        measures="nodes for each operator after a forward alone of ten multiplications; and edges"
        " for each, one to each of its two inputs",
        low=1.0,
        high=1.0,
        unit="nodes",
        teaches="Without no_grad an inference builds a tape that nobody reads.",
        otherwise="Read the tape (referee anatomy OP): its size does not follow from the number of operators.",
        below="operators were fused or not recorded",
        above="operators are composites of several",
    ),
    Claim(
        id="E12",
        claimed="matmul saves both inputs, relu can save only its output; saved tensors are the activation memory, so "
        "no_grad saves memory and time.",
        measures="share of five checks that come out so: mm saves two tensors, relu one, which is its output; under "
        "no_grad mm saves none, and a chain's peak memory is lower (the time is E14)",
        low=1.0,
        high=1.0,
        unit="frac",
        teaches="Saved tensors are the activation memory.",
        otherwise="Read what each node saves (referee anatomy OP) before memory is planned.",
    ),
    Claim(
        id="E13",
        claimed="In-place operators bump a version counter, and backward detects a mutated saved tensor.",
        measures="share of two checks that come out so: the counter moves, backward refuses",
        low=1.0,
        high=1.0,
        unit="frac",
        teaches="Autograd refuses rather than compute a wrong gradient.",
        otherwise="Do not rely on a refusal: here a mutation can go unseen.",
    ),
    Claim(
        id="E14",
        claimed="Inference without no_grad pays typically 10 to 30 % of the step, plus all activation memory.",
        measures="what four small linear layers with relu take longer with a tape, as a share of the time without",
        low=TAPE_FRAC[0],
        high=TAPE_FRAC[1],
        unit="frac",
        teaches="A tape costs a good part of a step of small operators.",
        otherwise="What a tape costs here is its own figure: measure it for the model in question.",
    ),
    Claim(
        id="E15",
        claimed="inference_mode is stricter than no_grad: it also skips version counters and view tracking; its "
        "tensors cannot enter autograd later (today precisely: cannot be saved for backward, nor be updated in place "
        "outside).",
        measures="share of six checks that come out so: no version counter, views not tracked, w + t works, w * t is "
        "refused, an update outside is refused, a clone works",
        low=1.0,
        high=1.0,
        unit="frac",
        teaches="inference_mode is for tensors that never meet autograd again.",
        otherwise="Try what an inference tensor may still do with this version of torch.",
    ),
    Claim(
        id="E16",
        claimed="AOTAutograd traces forward and backward ahead of time, so that no tape is built at run time "
        "(today precisely: one node for each compiled graph, besides gradient accumulation).",
        measures="nodes that a compiled function of twenty operators leaves, besides accumulation",
        low=0.0,
        high=1.0,
        unit="nodes",
        teaches="A compiled graph is one node to autograd.",
        otherwise="A compiled function may still leave a tape: read it.",
        above="the graph broke into several",
    ),
    Claim(
        id="E17",
        claimed="Three losses are recoverable, and the FLOPs do not change: per-operator overhead by capture and "
        "replay, memory traffic by fusion, allocator work by planning.",
        measures="the three losses of the recorded traces together, priced, as a share of the window; and each by "
        "itself",
        low=RECOVERABLE[0],
        high=RECOVERABLE[1],
        unit="frac",
        teaches="Each of the three losses is there to be recovered: price each before you mend it.",
        otherwise="Price each of the three losses: in these traces not all of them are there to be recovered.",
    ),
    Claim(
        id="E18",
        claimed="Eager mode makes one allocator request per intermediate; planning ahead removes them.",
        measures="requests per operator in a chain of ten",
        low=1.0,
        high=1.0,
        unit="requests",
        teaches="out= and planned memory save requests.",
        otherwise="Count the requests: their number does not follow from that of the operators.",
        below="results went into memory that was there",
        above="operators also need scratch memory",
    ),
    Claim(
        id="E19",
        claimed="Dispatch is a chain of indirect, hard-to-predict jumps through a table that is large and cold beside "
        "the little real work, so that an operator costs more amid other operators than in a hot loop.",
        measures="an add amid a mix of some thirty other operators, over the same add in a loop of its own",
        low=1.05,
        high=inf,
        unit="ratio",
        teaches="A loop of one operator flatters: amid others the same operator costs more.",
        otherwise="Here a loop of one operator tells the cost amid others as well.",
    ),
    Claim(
        id="E20",
        claimed="Computing the key set touches every argument: its cost grows with the number of tensor arguments.",
        measures="what one more tensor argument adds to a call on one element, its parsing and set-up included "
        "(addcmul against neg)",
        low=MORE_THAN_NOTHING,
        high=inf,
        unit="ns",
        teaches="A further tensor argument costs something at every call, and its key set takes part in that.",
        otherwise="Here a further tensor argument, or its key set, costs nothing that shows.",
    ),
    Claim(
        id="E21",
        claimed="Saved tensors are shared pointers: counting their references costs, and more so under contention from "
        "several threads.",
        measures="what saving two tensors adds to an operator (mul against add, both with a tape)",
        low=MORE_THAN_NOTHING,
        high=inf,
        unit="ns",
        teaches="What backward needs is paid for in the forward, at each operator that saves.",
        otherwise="Here saving a tensor, or two threads that share one, costs nothing that shows.",
    ),
)
