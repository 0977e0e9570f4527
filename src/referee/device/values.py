"""What do tensors hold? Zeros, infinities, NaN and subnormal numbers take another time than data, on some chips.

Read back from the device, so never inside a timed window; recording devices are left alone, where reading would run
what is recorded. Long tensors are sampled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_SAMPLE = 4_096
"""Elements looked at in each tensor."""

_MOST_TENSORS = 256
"""Tensors looked at: the order of a millisecond."""

_SUBNORMAL_FRAC = 0.1
"""So many of a tensor's elements must be subnormal: a few lie among any data."""

_UNREAD = ("meta", "lazy", "xla")


@dataclass(frozen=True, kw_only=True)
class Values:
    """Of how many tensors: all zero, some not finite, many subnormal (float32 and float64)."""

    tensors: int = 0
    zero: int = 0
    nan: int = 0
    infinite: int = 0
    subnormal: int = 0


def look_at(tensors: Iterable[torch.Tensor]) -> Values:
    """What the floating ones of ``tensors`` hold."""
    import torch

    readable = [tensor for tensor in tensors if _is_readable(torch, tensor)][:_MOST_TENSORS]
    with torch.no_grad():
        looked = (_looked_at(torch, tensor.detach()) for tensor in readable)
        seen = [kinds for kinds in looked if kinds is not None]
    counts = Counter(kind for kinds in seen for kind in kinds)
    return Values(tensors=len(seen), **counts)


def _looked_at(torch: Any, tensor: torch.Tensor) -> list[str] | None:
    """What ``tensor`` holds; ``None`` for a format in which this torch has no such question."""
    try:
        return list(_kinds(torch, tensor))
    except (RuntimeError, NotImplementedError):
        return None


def _is_readable(torch: Any, tensor: torch.Tensor) -> bool:
    """Whether reading ``tensor`` tells what it holds: a plain one, of floating numbers, where its data are."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.is_floating_point()
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and tensor.numel() > 0
        and tensor.device.type not in _UNREAD
    )


def _kinds(torch: Any, tensor: torch.Tensor) -> Iterator[str]:
    sample = _sample(tensor)
    if tensor.element_size() == 1:  # formats of eight bits only convert
        tensor, sample = tensor.float(), sample.float()
    if not bool(sample.any()):
        if not bool(tensor.any()):
            yield "zero"
        return
    if bool(torch.isnan(sample).any()):
        yield "nan"
    if bool(torch.isinf(sample).any()):
        yield "infinite"
    if sample.dtype in (torch.float32, torch.float64):
        small = (sample != 0) & (sample.abs() < torch.finfo(sample.dtype).tiny)
        if float(small.float().mean()) >= _SUBNORMAL_FRAC:
            yield "subnormal"


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Some elements from all over ``tensor``, without a copy of it where it lies in one piece."""
    if tensor.numel() <= _SAMPLE:
        return tensor.flatten()
    if not tensor.is_contiguous():
        for dimension, size in enumerate(tensor.shape):  # thinned out, dimension by dimension
            if tensor.numel() > _SAMPLE:
                step = min(size, -(-tensor.numel() // _SAMPLE))
                tensor = tensor[(slice(None),) * dimension + (slice(None, None, step),)]
        return tensor.flatten()
    return tensor.view(-1)[:: -(-tensor.numel() // _SAMPLE)]
