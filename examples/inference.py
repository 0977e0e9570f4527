"""One model, two ways to ask it: with ``torch.inference_mode`` and without. What does the grad mode cost?

Try it with::

    referee compare examples/inference.py:without examples/inference.py:with_inference_mode --batch-size 8

Both build the same model with the same weights and the same batch, so nothing but the grad mode differs. ``eval()``
alone, as in ``without``, still records the tape of a backward pass that never runs.
"""

from __future__ import annotations

import torch
from torch import nn

FEATURES, HIDDEN, CLASSES, LAYERS = 64, 128, 10, 6


class Dense(nn.Module):
    """A linear layer whose weight is kept as it is multiplied, so that a call takes no view.

    PyTorch's ``lazy`` backend cannot take views inside ``inference_mode``; this model runs there too.
    """

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, out) / width**0.5)
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, inputs, self.weight)


def build_model() -> nn.Module:
    """A deep, narrow classifier: many small operators, so that the cost per operator shows."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [Dense(FEATURES, HIDDEN), nn.GELU()]
    for _ in range(LAYERS - 2):
        layers += [Dense(HIDDEN, HIDDEN), nn.LayerNorm(HIDDEN), nn.GELU()]
    return nn.Sequential(*layers, Dense(HIDDEN, CLASSES)).eval()


def build_step(batch_size: int, device: str, dtype: torch.dtype, *, inference_mode: bool):
    """The step: one forward pass, with or without ``torch.inference_mode``."""
    model = build_model().to(device=device, dtype=dtype)
    inputs = torch.randn(batch_size, FEATURES).to(device=device, dtype=dtype)

    def step() -> torch.Tensor:
        with torch.inference_mode(inference_mode):
            return model(inputs)

    step.model = model
    return step


def with_inference_mode(batch_size: int = 8, device: str = "cpu", dtype: torch.dtype = torch.float32):
    """No tape, no version counters: the cheapest way to run a forward pass."""
    return build_step(batch_size, device, dtype, inference_mode=True)


def without(batch_size: int = 8, device: str = "cpu", dtype: torch.dtype = torch.float32):
    """``eval()`` only: the tape is still built and its activations are still saved."""
    return build_step(batch_size, device, dtype, inference_mode=False)
