"""Does memory that is no longer used go back to the system? A setting of the C library for small readers."""

from __future__ import annotations

import sys

_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 1 << 18


def return_large_blocks() -> None:
    """Make the C library give every large block back as soon as it is freed, for the rest of this process.

    The GNU library keeps freed blocks of up to 32 MB for later, once it has seen one of that size: of the columns of a
    million rows a third stays behind that way. Other libraries are left alone.
    """
    if sys.platform != "linux":
        return
    import ctypes

    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    if setting is not None:
        setting(_M_MMAP_THRESHOLD, _LARGE_BYTES)
