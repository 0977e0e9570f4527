"""In which mode are the layers that a step holds: as in training, or as in use?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from referee.device.host import load_torch

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
    code = getattr(getattr(_written(module), "forward", None), "__code__", None)
    if code is None or "training" not in code.co_names:
        return False
    known = {name: getattr(module, name, None) for name in ("p", "dropout", "track_running_stats")}
    return not (known["p"] == 0 or known["dropout"] == 0 or known["track_running_stats"] is False)


def _written(module: Any) -> type:
    """The class in which ``forward`` is written: of a scripted layer that of torch's layer by its name."""
    name = getattr(module, "original_name", None)
    layer = getattr(load_torch().nn, name, None) if isinstance(name, str) else None
    return layer if isinstance(layer, type) else type(module)
