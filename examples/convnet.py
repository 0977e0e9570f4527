"""A small residual convolutional net on random images: a training step and an inference step.

Try it with::

    referee bench examples/convnet.py:train_step --batch-size 8
    referee profile examples/convnet.py:infer --batch-size 8

Few operators, each with much to do: on most machines this one is limited by arithmetic, where the transformer example
is limited by the overhead per operator.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

CHANNELS, CLASSES, SIDE, BLOCKS = 32, 10, 32, 3


class Block(nn.Module):
    """Two 3×3 convolutions and a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(CHANNELS)
        self.second = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(CHANNELS)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self.first_norm(self.first(images)))
        return F.relu(images + self.second_norm(self.second(hidden)))


class Mean(nn.Module):
    """The mean over the image, one figure per class (no view: the ``lazy`` backend has none in ``inference_mode``)."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.mean(dim=(2, 3))


def build_model() -> nn.Module:
    """Stem, residual blocks, class maps, and their mean over the image."""
    torch.manual_seed(0)
    stem = nn.Conv2d(3, CHANNELS, 3, stride=2, padding=1)
    blocks = [Block() for _ in range(BLOCKS)]
    return nn.Sequential(stem, *blocks, nn.Conv2d(CHANNELS, CLASSES, 1), Mean())


def train_step(batch_size: int = 8, device: str = "cpu", dtype: torch.dtype = torch.float32):
    """A step that trains on one batch of random images and returns the loss."""
    model = build_model().to(device=device, dtype=dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    images = torch.randn(batch_size, 3, SIDE, SIDE).to(device=device, dtype=dtype)
    labels = torch.randint(CLASSES, (batch_size,)).to(device)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(images).float(), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step.model, step.optimizer = model, optimizer
    return step


def infer(batch_size: int = 8, device: str = "cpu", dtype: torch.dtype = torch.float32):
    """A step that classifies one batch of random images and returns the logits."""
    model = build_model().to(device=device, dtype=dtype).eval()
    images = torch.randn(batch_size, 3, SIDE, SIDE).to(device=device, dtype=dtype)

    @torch.inference_mode()
    def step() -> torch.Tensor:
        return model(images)

    step.model = model
    return step
