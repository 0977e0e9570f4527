"""Which dtype or device does this word mean? The only place where names become torch objects."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from referee.device.host import load_torch
from referee.errors import OptionError

if TYPE_CHECKING:
    import torch

_SHORT = {
    "fp64": "float64",
    "f64": "float64",
    "double": "float64",
    "fp32": "float32",
    "f32": "float32",
    "float": "float32",
    "fp16": "float16",
    "f16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
}
"""Short names that people use; torch's own names come first."""


def parse_dtype(name: str) -> torch.dtype:
    """The dtype called ``name``: ``float32``, ``torch.bfloat16``, ``bf16``. Raises OptionError with close names."""
    module = load_torch()
    word = name.strip().removeprefix("torch.").lower()
    found = getattr(module, _SHORT.get(word, word), None)
    if isinstance(found, module.dtype):
        return found
    known = sorted({key for key, value in vars(module).items() if isinstance(value, module.dtype)} | set(_SHORT))
    close = get_close_matches(word, known, n=3)
    hint = f"Did you mean {' or '.join(close)}?" if close else "Write for example float32, bfloat16 or float16."
    raise OptionError(f"{name!r} is not a dtype.", hint=hint)


def parse_device(name: str) -> torch.device:
    """The torch device called ``name``. Raises OptionError for what torch does not know."""
    module = load_torch()
    try:
        device: torch.device = module.device(name)
    except RuntimeError as error:
        raise OptionError(f"{name!r} is not a device name.", hint="Write for example cpu or cuda:0.") from error
    return device


def dtype_name(dtype: object) -> str:
    """``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def is_torch_type(kind: object, name: str) -> bool:
    """Whether the annotation ``kind`` is torch's type ``name`` (``dtype`` or ``device``), loading nothing."""
    return isinstance(kind, type) and kind.__module__ == "torch" and kind.__name__ == name
