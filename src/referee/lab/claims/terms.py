"""What do the words of the trade mean? Each is explained in the row that uses it first."""

from __future__ import annotations

import re
from collections.abc import Mapping

TERMS: dict[str, str] = {
    "settled": "the clock was stopped only after the result had been waited for",
    "amortised": "the time of many calls divided by their number",
    "tape": "what autograd writes down in the forward pass so that backward can run: one node for each operator",
    "node": "one entry of the tape; it knows its operator's derivative and holds the tensors that this needs",
    "kernel": "a function that runs on the device (or, of the dispatcher, the function registered for one key)",
    "launch": "the call by which the host puts a kernel into the device's queue",
    "synchronise": "wait until the device has done everything that was put into its queue",
    "lazy": "of a backend: calls only record what is to be done, until a result is asked for (XLA, TPU)",
    "correlation id": "the number that the profiler gives a call and the device work that the call started",
    "autocast": "the mode in which torch chooses an operator's dtype by a list, to use float16 or bfloat16",
    "underflow": "a number too small for its dtype becomes zero",
    "GradScaler": "torch's class that multiplies the loss, and so all gradients, and divides before the step",
    "bf16": "bfloat16, 16 bits with float32's range",
    "provenance": "where a number comes from: chip, dtype, shapes, method, software, state of the machine",
    "dispatcher": "the part of torch that finds the kernel for a call, by the keys of its tensors",
    "dispatch": "one look-up of the dispatcher and the jump to what it found",
    "key set": "the marks of a tensor that say what must handle it: its backend, autograd, autocast, a mode",
    "eager": "each operator is issued when Python reaches it",
    "hot": "in a loop of the one operator, all caches warm",
    "cold": "amid other operators, as in a model",
    "fused": "several operators made into one kernel",
    "graph": "a recorded sequence of kernels, issued by one call (CUDA graph), or of operators, for a compiler",
    "elementwise": "each element of the result needs the same place of the inputs alone",
    "regime": "what limits the step: the host that issues it, or the device that computes it",
    "knee": "the batch size from which on the work counts more than the fixed cost",
    "FakeTensor": "a tensor with shape and dtype and no data, by which compilers try a program out",
    "dispatch mode": "a Python object that is handed every operator while it is active",
    "in-place": "the operator writes into its input",
    "version counter": "how often a tensor was written to",
    "no_grad": "the context in which no tape is written",
    "inference_mode": "as no_grad, and its tensors carry less",
    "AOTAutograd": "the part of torch.compile that traces forward and backward before anything runs",
    "out=": "the argument by which a result is written into memory that is there",
    "multiprocessor": "one of a GPU's many processors (SM), on which the blocks of a kernel run",
    "occupancy": "the share of a multiprocessor's room for threads that a kernel fills",
    "self": "of a time: without what was called inside",
    "window": "from the first piece of device work to the last",
    "launch-bound": "the device waits for the host to issue the next operation",
    "compute-bound": "the device computes nearly all the time",
    "overhead-bound": "on a CPU: issuing operators takes longer than their arithmetic",
    "null experiment": "raise the batch size and see whether the time moves",
    "backend": "the part of torch for one kind of device",
    "allocator": "the part of torch that hands out memory, most of it kept from before",
    "stride": "how far apart in memory the neighbours along one dimension lie",
    "broadcast": "reading one value as if it were there many times, so that shapes fit",
    "view": "a tensor that looks into another one's memory",
    "schedule": "the profiler's plan: so many steps passed over, so many run in, so many recorded",
    "mantissa": "the bits of a number that hold its digits",
    "accumulation": "adding a gradient to the one that is there",
    "contention": "several want the same thing at once",
    "independent": "of blocks: neighbours are alike, and tell less than as many that have nothing in common",
    "sag": "a chip's clock is lowered where it is hot, or draws all the power it may",
    "FLOP": "one addition or multiplication of floating-point numbers",
    "replay": "issue a captured graph again as it was recorded",
    "bytecode": "what Python's interpreter runs",
    "wave": "the blocks of a kernel that run at once; the last may fill only some multiprocessors",
}
"""Term → what it means, in one line. In the order of the list the first match of a word counts."""

_WORDS = {term: re.compile(rf"(?<![\w-]){re.escape(term)}(?:s|es)?(?![\w=-])", re.IGNORECASE) for term in TERMS}


def words_in(text: str, *, known: Mapping[str, str]) -> dict[str, str]:
    """The terms that ``text`` uses and ``known`` has not, in the order in which they appear."""
    found = {term: match.start() for term, word in _WORDS.items() if term not in known and (match := word.search(text))}
    return {term: TERMS[term] for term in sorted(found, key=lambda term: found[term])}
