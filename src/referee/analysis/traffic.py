"""How much memory traffic between operators could fusion take away? Adjacent operators whose shapes fit.

Rows state inputs only. An operator's output shape is inferred where it follows from its inputs (pointwise operators
and norms); the next operator on the stream that has an input of just that shape is taken for its reader.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np

from referee.analysis.opcost import NORM_LIKE, POINTWISE, element_bytes, output_shape
from referee.analysis.peaks import peak_of
from referee.graph.work import Work
from referee.records.trace_report import Loss
from referee.trace.columns import NONE, Trace
from referee.trace.details import Details, Operator


def price_traffic(trace: Trace, works: tuple[Work, ...], details: Details | None) -> Loss:
    """The time that writing and reading intermediates takes at the memory's peak rate, over the window.

    Low: readers with that one input, which cannot need anything else. High: all adjacent pairs. The gain is device
    time: it shortens the step only where the device is the limit.
    """
    if details is None or not details.operators:
        return _null("the operators' input shapes are not recorded: record with record_shapes=True")
    low_bytes = high_bytes = pairs = 0
    low_ns = high_ns = 0.0
    for work in works:
        peak = peak_of(trace, work.device)
        if peak is None:
            return _null("the memory rate of the device is not known")
        low, high, found = _pairs(trace, work, details)
        low_bytes, high_bytes, pairs = low_bytes + low, high_bytes + high, pairs + found
        low_ns += 1e9 * low / peak.bandwidth
        high_ns += 1e9 * high / peak.bandwidth
    return Loss(
        recoverable_ns=round(low_ns),
        low_ns=round(low_ns),
        high_ns=round(high_ns),
        basis=f"adjacency: {pairs:,} adjacent pairs whose shapes fit write and read {high_bytes:,} bytes "
        f"({low_bytes:,} with one reader for certain) at the memory's peak rate",
    )


def _null(reason: str) -> Loss:
    return Loss(recoverable_ns=None, low_ns=None, high_ns=None, basis=f"not priced: {reason}")


def _pairs(trace: Trace, work: Work, details: Details) -> tuple[int, int, int]:
    """Bytes at the low and the high bound and the number of pairs, over the streams of one device."""
    low = high = pairs = 0
    for stream in np.unique(work.stream):
        chosen = (work.stream == stream) & work.linked
        operator = trace.links.operator_of[work.launch[chosen]]
        sequence = operator[operator != NONE]
        sequence = sequence[np.concatenate(([True], np.diff(sequence) != 0))] if sequence.size else sequence
        for writer, reader in pairwise(sequence.tolist()):
            size, single = _passed_on(trace, details, writer, reader)
            pairs += size > 0
            high += 2 * size
            low += 2 * size if single else 0
    return low, high, pairs


def _passed_on(trace: Trace, details: Details, writer: int, reader: int) -> tuple[int, bool]:
    """Bytes of the writer's output if the reader seems to read it, and whether it has no other tensor input."""
    first, second = details.operators.get(writer), details.operators.get(reader)
    names = trace.name_of(writer), trace.name_of(reader)
    if first is None or second is None or not (_fusable(names[0]) and _fusable(names[1])):
        return 0, False
    shape = output_shape(names[0], first)
    inputs = _tensors(second)
    if shape is None or shape not in inputs or not prod(shape):
        return 0, False
    size = prod(shape) * (element_bytes(first.types[0]) or 0)
    return size, len(inputs) == 1


def _fusable(name: str) -> bool:
    return POINTWISE.match(name) is not None or NORM_LIKE.match(name) is not None


def _tensors(operator: Operator) -> list[tuple[int, ...]]:
    return [d for d, t in zip(operator.dims, operator.types, strict=False) if element_bytes(t) and d]
