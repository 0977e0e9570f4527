"""In which mode are the layers that a step holds: as in training, or as in use?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def training_mode(modules: Iterable[torch.nn.Module]) -> str:
    """``train`` or ``eval``, as the layers are whose forward asks for it; both where they differ.

    Layers that compute the same in both modes (no such question in their code, or a dropout of 0) say nothing: ``none
    seen`` where there is no other.
    """
    parts = {id(part): part for module in modules for part in module.modules()}
    found = {part.training for part in parts.values() if _asks(part)}
    return " and ".join(word for word, mode in (("train", True), ("eval", False)) if mode in found) or "none seen"


def _asks(module: Any) -> bool:
    code = getattr(type(module).forward, "__code__", None)
    if code is None or "training" not in code.co_names:
        return False
    known = vars(module)
    return not (known.get("p") == 0 or known.get("dropout") == 0 or known.get("track_running_stats") is False)
