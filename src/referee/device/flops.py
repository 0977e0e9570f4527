"""How much arithmetic does a call do, and what could this processor do at best?

Matrix products, convolutions and attention are counted by torch's own formulas; what else runs is not counted, so that
the figure is a lower bound, and a rate made from it can be too low but not too high.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from referee.device.chip import affinity
from referee.device.host import load_torch
from referee.device.settle import find_leaves
from referee.units import NS_PER_MS, NS_PER_S

_WIDTHS = (256, 512)
"""Products of the first fit between two preemptions; wide units come near to their best with the second alone."""

_ROUNDS = 5
_SEARCH_NS = 30 * NS_PER_MS
_MARGIN = 2.0
"""Nothing computes twice as fast as the best of many matrix products; a smaller margin would meet turbo clocks."""


def flop_of(func: Any, args: Any, kwargs: Any, out: object) -> int:
    """Floating-point operations of one operator call; 0 where torch has no formula for the operator or these arguments.

    Sparse tensors count nothing: the formulas see shapes, and would count what their zeros spare.
    Source: ``torch.utils.flop_counter``, where a multiplication and an addition are two.
    """
    from torch.utils.flop_counter import flop_registry

    formula = flop_registry.get(func._overloadpacket)
    if formula is None or any(_is_sparse(tensor) for tensor in _tensors(args, kwargs)):
        return 0
    try:
        return int(formula(*args, **kwargs, out_val=out))
    except (AssertionError, IndexError, TypeError, ValueError):  # shapes that the formula does not know
        return 0


def arithmetic_dtype(args: Any, kwargs: Any) -> str:
    """The dtype that an operator with these arguments computes in: that of its first tensor, or "none"."""
    first = next(iter(_tensors(args, kwargs)), None)
    return "none" if first is None else str(first.dtype).removeprefix("torch.")


def _tensors(args: Any, kwargs: Any) -> list[Any]:
    return find_leaves((args, tuple((kwargs or {}).values())), load_torch().Tensor)


def _is_sparse(tensor: Any) -> bool:
    torch = load_torch()
    return not tensor.is_nested and tensor.layout not in (torch.strided, torch._mkldnn)


@lru_cache(maxsize=8)
def _best_of_one_thread(dtype: str) -> float | None:
    """The rate of the best of many matrix products on one thread, in FLOP/s; ``None`` for dtypes without one.

    Threads together are no measure of what they can do where others want the cores too: each product waits for the
    thread that lost its own. Beside two busy processes two threads read 8 to 34 GFLOP/s in bfloat16 whatever the
    number of rounds, and one thread 454 to 516.
    """
    torch = load_torch()
    wanted = getattr(torch, dtype, torch.float32)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        with torch.inference_mode():
            return max(_best_of_width(torch, width, wanted) for width in _WIDTHS)
    except (RuntimeError, TypeError):  # no matrix product in this dtype
        return None
    finally:
        torch.set_num_threads(threads)


def _best_of_width(torch: Any, width: int, dtype: Any) -> float:
    # Not drawn: the user's random numbers stay where they are.
    a = torch.linspace(-1, 1, width**2, dtype=torch.float32, device="cpu").reshape(width, width).to(dtype)
    spans: list[int] = []
    began_ns = time.perf_counter_ns()
    while len(spans) < 2 or ((len(spans) < _ROUNDS or sum(spans) < _SEARCH_NS) and _within(began_ns)):
        start_ns = time.perf_counter_ns()
        torch.mm(a, a)
        spans.append(time.perf_counter_ns() - start_ns)
    return 2 * width**3 * NS_PER_S / min(spans)


def _within(began_ns: int) -> bool:
    """Whether there is time for another product: some formats are computed a hundred times slower than others."""
    return time.perf_counter_ns() - began_ns < 3 * _SEARCH_NS


def cpu_ceiling_flop_per_s(dtypes: Iterable[str]) -> float | None:
    """More than this the CPU cannot do in any of ``dtypes``: twice the best of one thread, on each processor.

    On all of them, however many threads compute one operation: a step may have threads of its own. ``None`` where no
    dtype has a matrix product. Takes some tens of milliseconds, once for each dtype.
    """
    best = [rate for dtype in dict.fromkeys(dtypes) if (rate := _best_of_one_thread(dtype)) is not None]
    return _MARGIN * max(best) * len(affinity()) if best else None
