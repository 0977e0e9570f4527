"""What becomes of memory that is no longer used? Settings of the C library, for the rest of the process.

A diagnosis makes and drops hundreds of arrays of megabytes. A process that exists for it alone gains a fifth of its
time by keeping what is freed for the next array; one that is short of memory gives it back at once.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_LARGE_BYTES = 1 << 18
_SPARE_BYTES = 1 << 21
"""What is kept of small blocks for the next piece of text, which would ask for it again at once."""
_NEVER_BYTES = 1 << 30
_GROWTH_BYTES = 1 << 26


def return_large_blocks() -> None:
    """Give every large block back as soon as it is freed.

    The GNU library keeps freed blocks of up to 32 MB for later, once it has seen one of that size: of the columns of a
    million rows a third stays behind that way.
    """
    _set({_M_MMAP_THRESHOLD: _LARGE_BYTES, _M_TRIM_THRESHOLD: _SPARE_BYTES, _M_TOP_PAD: _LARGE_BYTES})


def keep_large_blocks() -> None:
    """Keep freed blocks for the next one, so that the system need not clear new memory for each array."""
    _set({_M_MMAP_THRESHOLD: _NEVER_BYTES, _M_TRIM_THRESHOLD: _NEVER_BYTES, _M_TOP_PAD: _GROWTH_BYTES})


def _set(options: dict[int, int]) -> None:
    """Set options of the GNU C library; other libraries are left alone."""
    if sys.platform != "linux":
        return
    import ctypes

    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    if setting is not None:
        for option, value in options.items():
            setting(option, value)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Leave out the search for cycles: it would only look at the same millions of objects again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
