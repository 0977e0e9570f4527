"""Why can an operator not be called with what is made up? torch's words put shortly, and what it would need instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from referee.anatomy.operator import Operator
from referee.device.host import load_torch
from referee.errors import OptionError
from referee.units import format_bytes

_KINDS = {
    "SparseCPU": "sparse",
    "SparseCsrCPU": "compressed sparse",
    "QuantizedCPU": "quantized",
    "MkldnnCPU": "MKL-DNN",
    "NestedTensorCPU": "nested",
    "CUDA": "CUDA",
}
"""Dispatch keys of tensors that are not made up, and what such tensors are called."""

_TRIED_TO_ALLOCATE = re.compile(r"tried to allocate (\d+) bytes")


def first_sentence(text: str) -> str:
    """The first sentence of what an operator said, at most 200 letters; of a failed allocation how much was asked."""
    wanted = _TRIED_TO_ALLOCATE.search(text)
    if wanted:
        return f"{format_bytes(int(wanted.group(1)))} cannot be allocated"
    line = text.strip().splitlines()[0] if text.strip() else "an error without words"
    return line.partition(". ")[0].rstrip(".")[:200]


@contextmanager
def memory_errors(operator: Operator) -> Iterator[None]:
    """Say as the user's mistake that memory ended: two outputs stand beside each other where the trial held one."""
    try:
        yield
    except RuntimeError as error:
        if not _TRIED_TO_ALLOCATE.search(str(error)):
            raise
        raise OptionError(
            f"{operator.dotted} cannot be taken apart with tensors of that size: {first_sentence(str(error))}.",
            hint="Give smaller ones with --shape.",
        ) from error


def missing(operator: Operator) -> str:
    """What the operator would need that is not made up, in one sentence; empty where nothing is known of it."""
    has = load_torch()._C._dispatch_has_kernel_for_dispatch_key
    kinds = [kind for key, kind in _KINDS.items() if has(operator.full, key)]
    if kinds and not any(has(operator.full, key) for key in ("CPU", "CompositeImplicitAutograd")):
        return f"It has kernels for {_listed(kinds)} tensors, and the tensors made up here are dense ones on the CPU."
    if "scaled_" in operator.base and operator.base.endswith(("_mm", "_mm_v2")):
        return "It needs operands of float8 with their scales, and the dtypes made up here are the usual ones."
    return ""


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
