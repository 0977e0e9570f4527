"""How is each number taken, on what, and where does its range come from? What a reader needs to repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log

from referee.lab.claims.diagnosing import BARELY


@dataclass(frozen=True, kw_only=True)
class Method:
    """how: operators, shapes, dtypes, and the clock. range_from: where the range comes from, if the course
    gives no figure. untested: the parts of the claim that nothing here puts to the test, each with the reason."""

    how: str
    from_traces: str = ""
    """How the number is taken from recorded traces, where it can be taken live as well."""
    range_from: str = ""
    untested: Mapping[str, str] = field(default_factory=dict)

    def told(self, *, recorded: bool) -> str:
        """How, the way that was gone first."""
        if not self.from_traces:
            return self.how
        ways = [f"Live: {self.how}", f"From traces: {self.from_traces}"]
        return " ".join(reversed(ways) if recorded else ways)


_IN_TURN = "the two are timed in turn, block by block, so that drift falls on both"
_PAIRS = f"{_IN_TURN}; the interval is the difference's"
_RATIOS = f"{_IN_TURN}; the interval is that of the ratio, from the paired differences"

_BARELY_FRAC = log(BARELY) / log(8)
"""What a step that barely moves shows of eight times the batch, both as logarithms."""

METHODS: dict[str, Method] = {
    "M1": Method(
        how="x @ x, 256 × 256, float32. One clock is read when the last call of a block has returned, the other when "
        "its result was awaited: their ratio. Only the scatter of the awaited clock is in the interval, because of the "
        "other one the measurement keeps its median alone.",
        range_from="the course says that it is the same; 5 % is the least that would mislead.",
    ),
    "M2": Method(
        how="x @ x as in M1, on the CUDA device; what one synchronise makes of it is held against the device's own "
        "events.",
        from_traces="every kernel that one of CUDA's calls in the file launched, its end against the end of that "
        "call; and every such kernel launched before a synchronise, its end against the end of that synchronise. The "
        "median over traces counts. Traces whose launches are another maker's calls are told beside it.",
        range_from="“enqueueing, not execution”: nine tenths of the work at least.",
    ),
    "M3": Method(
        how="x @ x, 256 × 256, float32, as in M1, on XLA where it is installed and on PyTorch's own lazy backend "
        "otherwise. The awaited clock materialises each call's own output. Only its scatter is in the interval, as in "
        "M1. Blocks are longer here than on a CPU, so that the wait at their end spreads over their calls.",
        range_from="“almost none”: at most a tenth.",
    ),
    "M4": Method(
        how="torch.add of two vectors of 64 elements, float32, after a warm-up that ends when the series is steady. "
        "One clock is read around every single call, the other around n calls with one wait behind them. The course's "
        "own harness takes n = 50; here n is chosen so that a block lasts about 0.15 ms. Only the scatter of the "
        "blocks is in the interval, because of the single calls the measurement keeps a median alone.",
        range_from="the course gives no figure; 2 % is the least that counts, and what spreads thin is gone by half at "
        "least.",
        untested={
            "a device that computes beside the host": "both clocks here are of a CPU, where settling finds nothing to "
            "wait for",
            "warming up off the clock": "M7 has what the first step costs",
        },
    ),
    "M5": Method(
        how="torch.nn.Linear(512, 512) on a (64, 512) input, float32, with its bias and with a tape; as many calls "
        "back to back as last about 0.15 ms, so that a call which takes longer is a block by itself.",
        range_from="the course's 0.142 ms, give or take a tenth.",
    ),
    "M6": Method(
        how="Each kernel, copy and fill of a trace is looked up by its correlation id: its launch must be in the "
        "same file and must not begin after it.",
        range_from="one timeline: all of it, but for a few rows at the edges of the recording.",
    ),
    "M7": Method(
        how="Linear(64, 64), relu, Linear(64, 8) on a batch of 16, float32: forward, backward, Adam. The very first "
        "call is timed once (n = 1, so it has no interval of its own); the steady one after a warm-up. Beside it "
        "steps while torch.profiler records the CPU, each settled; and five steps under a schedule of wait 1, warm-up "
        "1, active 3, whose rows say which steps it recorded.",
        untested={
            "that the steps a schedule records are steady": "they are told by their numbers and not timed one by one",
        },
        range_from="the course gives no figure; a fifth for the first step, and 2 % for the skew, are the least "
        "that would spoil a result.",
    ),
    "M8": Method(
        how="Under torch.autocast in bfloat16. mm (4 × 4) and conv2d are given float32 inputs and must answer in "
        "bfloat16. sum, softmax, layer_norm, mse_loss and exp are given bfloat16 inputs, as behind a matmul, and must "
        "answer in float32. Given float32 they would stay in it anyway, which would test nothing.",
    ),
    "M9": Method(
        how="Ten thousand gradients, 2^e with e spread evenly from -40 to -26, seed 0, are rounded to fp16 as they are "
        "and after multiplication by 2^16, which is GradScaler's first scale. fp16 has nothing between zero and "
        "2^-24: anything up to 2^-25 becomes zero.",
        range_from="“saves them”: all but one in a hundred.",
        untested={
            "unscaling and the step": "gradients are rounded here, no model is trained; referee precision TARGET "
            "does that for yours",
        },
    ),
    "M10": Method(
        how="The gradients of M9, rounded to bf16 (8 bits of exponent as float32, 7 of mantissa; fp16 has 5 and 10).",
        untested={
            "the native dtype of the TPU path": "it takes a TPU; on XLA here: referee bench "
            "examples/xla_matmul.py:chain --device xla --dtype bfloat16",
        },
    ),
    "M11": Method(
        how="A record of a measurement is built seven times with its provenance taken away, replaced by a word, or "
        "without chip, dtype, shapes or method; each attempt must raise.",
        untested={
            "that it is no measurement": "a definition; the row shows that this tool keeps it",
        },
    ),
    "E1": Method(
        how="torch.add(a, b), 8 elements, float32, both require a gradient, in turn with some thirty other operators "
        "(cold). One earlier result is kept, so that the nodes which accumulate gradients are there and are not made "
        "anew at each call. The stages come from calls that stop at successive layers of such an add, in a loop of its "
        "own (hot), by differences, so that they add to the hot call and not to the cold number. Keys and jump is the "
        "finding of the key set and the bare jump; autograd's kernel is a part of the autograd node and tape. E10 "
        "prices a whole further layer.",
        range_from="the sum of the course's rows but the launch, which a CPU has not; a row given as one figure, 0.5, "
        "as what rounds to it.",
        untested={
            "cudaLaunchKernel": "a CPU has none; E7 has recorded ones",
        },
    ),
    "E2": Method(
        how="Every kernel whose name has “elementwise” in it and whose row states its blocks, of which there are no "
        "more than multiprocessors: the median of each trace, then over traces. All sizes are told beside it.",
        untested={
            "the 5 to 10 µs of its call": "a profiler lengthens calls; E1 has that time on a CPU",
        },
    ),
    "E3": Method(
        how="A Python loop of a thousand y = y + x, float32, no tape, on 16, 256, 4,096 and 65,536 elements. Issuing "
        "alone: the same loop of y = y.detach(), an operator that computes nothing and is dispatched all the same.",
        range_from="“about 8 ms”, less the launch, 2 to 5 µs an operator, which a CPU has not (E1 leaves it out too); "
        "“whatever the tensors' size”: issuing alone on 1,048,576 elements within a quarter of that on 16.",
        untested={"the launch": "it is in the course's figure and in neither the range nor the number here"},
    ),
    "E4": Method(
        how="TransformerEncoderLayer(64 wide, 4 heads, 128 in between), batch 2, length 8, float32, no dropout. "
        "Operators are counted below autograd by a dispatch mode in one call, attention as single operators. The step "
        "is the layer's forward, a loss (the mean of squares) and the backward of both, times 32, so that the loss is "
        "counted with each layer; no optimizer. Its time is settled, after a warm-up; beside it the same step at batch "
        "1 and length 1, which has a sixteenth of the elements to work on.",
        untested={
            "a model of 32 layers": "one layer was built, and its step multiplied",
        },
    ),
    "E5": Method(
        how="The encoder layer of E4, attention as single operators, and its mean of squares; operators with backward, "
        "less those without."
    ),
    "E6": Method(
        how="torch.add on 2^14 to 2^27 float32 elements: events on the device against the time until the call returns; "
        "the size at which the first becomes the longer is interpolated.",
    ),
    "E7": Method(
        how="The calls cudaLaunchKernel, cuLaunchKernel and their cooperative kin that put a row on a device; graph "
        "launches apart. The median of each trace, then over traces. A recorded call contains the profiler's own part.",
        untested={
            "both without a profiler": "a recorded call holds the profiler's own part",
        },
    ),
    "E8": Method(
        how="Six Linear(64, 64) in a row, float32, forward with a tape, at batches of 1, 4, 16, 64, 256, 1,024. "
        "The growth of the time over the growth of the batch, both as logarithms, at the two ends.",
        range_from="two regimes: at least half of the growth must separate the ends.",
        untested={
            "the formula": "on a CPU there is no device time apart from the host's; the sweep shows that there are "
            "two regimes",
        },
    ),
    "E9": Method(
        how="torch.mm on 4 × 4 tensors: the path that the dispatcher's own table gives; what a mode of ours and a "
        "FakeTensor are handed under autocast (bfloat16); an inference tensor plus one that requires a gradient, which "
        "only the union of both key sets sends through autograd; autograd's key excluded by a guard; what a tensor "
        "subclass is handed under autocast; the dtype of a matmul compiled under it (backend='aot_eager'); and what an "
        "add_ in torch.func.functionalize becomes.",
        untested={
            "a subclass under torch.compile": "compile and a subclass are each tried under autocast alone",
        },
    ),
    "E10": Method(
        how="Keys with a kernel on the path of torch.mm under autocast and autograd. One dispatch: torch.neg on 8 "
        "elements through autograd's kernel without a tape, less the same call on an inference tensor, which skips it; "
        + _PAIRS
        + ".",
    ),
    "E11": Method(how="y = y * x ten times on 8 elements that require a gradient; the tape is read, nothing runs it."),
    "E12": Method(
        how="torch.mm and torch.relu on 8 × 8 float32 that require a gradient: what their nodes saved, and how much "
        "memory a chain of ten relu on 64 Ki elements holds at most, with a tape and under no_grad.",
        untested={
            "the time": "E14 has it",
        },
    ),
    "E13": Method(how="y = 2x; z = sum(y * y), whose tape saves y; y.add_(1) under no_grad; z.backward() must raise."),
    "E14": Method(
        how="Four times Linear(64, 64) and relu, batch 8, float32, forward; and one Linear(512, 512) on 64 rows; with "
        "a tape and under torch.no_grad, whose own cost is outside of the loop; " + _RATIOS + ".",
        range_from="the course's 10 to 30 %, which is of the step without a tape here. It says “typically” and of no "
        "step in particular: small layers are judged, where a tape weighs most; one large layer is told beside them.",
        untested={
            "what is typical": "two steps of our own choice were tried",
            "the activation memory": "E12 has it",
        },
    ),
    "E15": Method(how="Tensors of 4 elements made under torch.inference_mode, used outside with one that needs grad."),
    "E16": Method(
        how="sin(x) * 2 ten times, compiled with torch.compile(backend='aot_eager'), which is AOTAutograd without a "
        "code generator; then the tape of its output is read.",
    ),
    "E17": Method(
        how="Per-operator idle, fusible memory traffic and allocator work of each trace as referee trace prices "
        "them, added up over the window; the median over traces. A loss that a trace does not price is missing in "
        "its sum. A price is a prediction.",
        range_from="recoverable means more than 1 % of the window, of each loss by itself too.",
        untested={
            "the fixes": "a price is a prediction; referee remedy TARGET applies them and measures",
            "that the FLOPs do not change": "traces do not count them",
        },
    ),
    "E18": Method(
        how="y = y + x ten times on 1,024 float32 elements; requests at the allocator counted in one "
        "call; then ten times torch.add(x, x, out=out)."
    ),
    "E19": Method(
        how="The add of E1, with a tape: in a loop of its own, and in turn with some thirty other operators, whose "
        "time is subtracted.",
        range_from="the course says “more”; 5 % is the least that would mislead. How much more depends on the machine "
        "and on the others.",
        untested={
            "that the jumps are the cause": "other operators also fill the caches",
        },
    ),
    "E20": Method(
        how="torch.addcmul(a, a, a) less torch.neg(a), by two, on 1 element, float32, no_grad; " + _PAIRS + ". The key "
        "set alone comes from calls into a small C++ extension, the probe, that compute nothing: with eight tensors, "
        "less with one, by seven. All is made anew several times, because where it lies in memory moves so small a "
        "figure; its interval takes in each making's own, and on by what two equal calls differ.",
        range_from="the course says “grows” and gives no figure: the whole interval must lie above zero.",
    ),
    "E21": Method(
        how="torch.mul and torch.add on 8 elements, float32: what a tape adds to the first (it saves two tensors) less "
        "what it adds to the second (it saves none). References are copied and dropped by threads of the probe "
        "(E20); two count where they ran at once.",
        range_from="the course says “costs” and gives no figure: the whole interval must lie above zero; two threads "
        "must add 1 ns to a copy, because starting them adds a little less than that.",
    ),
    "D1": Method(
        how="Window: from the first device row to the last. Any kernel: the union of kernel rows over it, copies not "
        "counted. Weighted: each kernel by the share of multiprocessors that its blocks can occupy. nvidia-smi itself "
        "samples over 1/6 to 1 s; traces shorter than that give the share of their whole window.",
        range_from="the course gives no figure; 5 % more is the least that would mislead.",
        untested={
            "nvidia-smi itself": "it takes a GPU",
            "a thousand tiny kernels on a handful of multiprocessors": "the traces nearest to it are told",
        },
    ),
    "D2": Method(
        how="Of each trace: is there a device window; are there self totals of both sides; do steps hold kernels; was "
        "occupancy recorded? A trace counts where all four are so.",
        range_from="the course gives advice and no figure.",
        untested={
            "the order": "whether it finds the cause soonest",
            "the null experiment": "it takes runs at several batch sizes: D5 and E8",
        },
    ),
    "D3": Method(
        how="Gaps between the end of all device work and the next start, in traces whose verdict is launch-bound: the "
        "median of each, then over traces; and the median kernel of each. “The mark” and “diagnostic alone” are tried "
        "on all traces whose regime is known: of those with such a median gap, and of those with a thousand kernels or "
        "more and such a median kernel, the share that is launch-bound. A gap holds the profiler's part of the calls "
        "in it, as anybody's timeline does.",
        range_from="“a few µs”: 1 to 10. “the mark” and “diagnostic alone” make no exception: every trace that shows "
        "such gaps, or such kernels, would have to be launch-bound.",
    ),
    "D4": Method(
        how="Self CPU time of all operators and calls, and self device time, as the profiler's own table adds them; "
        "the verdict of referee trace says which regime it was. Traces whose regime is mixed or cannot be told are "
        "left out.",
        range_from="the claim makes no exception.",
        untested={
            "that work on kernels cannot help": "nobody worked on these",
        },
    ),
    "D5": Method(
        how="Four times Linear(32, 32) and relu, float32, at batch 1 and 8; then one Linear(512, 512) at batch 64 and "
        "512, whose time is work; " + _RATIOS + ". Beside them the same four layers of 1 × 1, which have next to no "
        "arithmetic.",
        range_from=f"“barely”: less than a quarter more for eight times the work, {_BARELY_FRAC:.0%} of the growth as "
        "E8 counts it; a step that is work must show more than that.",
        untested={
            "launch-bound on a GPU": "overhead on a CPU stands for launches here",
        },
    ),
    "D6": Method(
        how="Eight times Linear(64, 64) and GELU at batch 4, float32, no_grad, on CUDA: eager, compiled, captured in a "
        "CUDA graph, and eager at batch 32; time per sample. torch.compile fuses operators, so fewer are issued; a "
        "graph issues all of them by one call; a larger batch gives each call more to do.",
        range_from="each must help, and the order must be the course's.",
    ),
    "D7": Method(
        how="torch.mm of 4,096 × 4,096 says which of two CUDA devices is the faster; torch.mm of 32 × 32 on both, "
        "n calls back to back.",
        range_from="slower by 2 % at least: a tie is not slower.",
        untested={
            "each of the four causes": "the row has the effect alone",
        },
    ),
    "D8": Method(
        how="Linear(64, 64), relu, Linear(64, 64), float32, at batch 1 and 256: samples per second, one over the "
        "other; " + _RATIOS + ".",
        range_from="the course gives no figure; a tenth is the least that would change what one rents.",
    ),
}
"""Claim → how its number is taken."""
