"""How much arithmetic does a call do, and what could this processor do at best?

Matrix products, convolutions and attention are counted by torch's own formulas; what else runs is not counted, so that
the figure is a lower bound, and a rate made from it can be too low but not too high.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

from referee.device.host import load_torch
from referee.units import NS_PER_S

_WIDTH = 512
_ROUNDS = 5
_MARGIN = 2.0
"""Nothing computes twice as fast as the best of a few matrix products; a smaller margin would meet turbo clocks."""


def flop_of(func: Any, args: Any, kwargs: Any, out: object) -> int:
    """Floating-point operations of one operator call; 0 where torch has no formula for the operator or these arguments.

    Source: ``torch.utils.flop_counter``, where a multiplication and an addition are two.
    """
    from torch.utils.flop_counter import flop_registry

    formula = flop_registry.get(func._overloadpacket)
    if formula is None:
        return 0
    try:
        return int(formula(*args, **kwargs, out_val=out))
    except (AssertionError, IndexError, TypeError, ValueError):  # shapes that the formula does not know
        return 0


@lru_cache(maxsize=8)
def _ceiling(dtype: str, threads: int) -> float | None:
    torch = load_torch()
    wanted = getattr(torch, dtype, torch.float32)
    try:
        a = torch.randn(_WIDTH, _WIDTH).to(wanted)
        with torch.inference_mode():
            spans = []
            for _ in range(_ROUNDS):
                start_ns = time.perf_counter_ns()
                torch.mm(a, a)
                spans.append(time.perf_counter_ns() - start_ns)
    except RuntimeError:  # no matrix product in this dtype
        return None
    return _MARGIN * 2 * _WIDTH**3 * NS_PER_S / min(spans)


def cpu_ceiling_flop_per_s(dtype: str) -> float | None:
    """More than this the CPU cannot do with the threads in force: twice the rate of the best of a few matrix products.

    ``None`` for dtypes without one. Takes some milliseconds, once for each dtype and number of threads.
    """
    return _ceiling(dtype, load_torch().get_num_threads())
