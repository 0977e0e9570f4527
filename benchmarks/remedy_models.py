"""Eight models at three sizes for which a gain of compiling is predicted: a factory per model, ``size`` chooses.

Each step runs without a tape: what is compiled is the forward pass, or a hand-written optimizer step. Weights come
from a fixed seed, so that two that are built hold the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own habit

SIZES = ("small", "middle", "large")
Step = Callable[[], object]


def _pick(size: str, *values: tuple[int, ...]) -> tuple[int, ...]:
    return values[SIZES.index(size)]


def _inference(model: nn.Module, inputs: torch.Tensor) -> Step:
    model.eval()

    def step() -> object:
        with torch.no_grad():
            return model(inputs)

    step.model = model  # type: ignore[attr-defined]
    return step


def mlp(size: str = "small") -> Step:
    """Linear layers with ReLU between."""
    torch.manual_seed(0)
    batch, width, depth = _pick(size, (8, 64, 4), (64, 256, 4), (256, 1024, 4))
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return _inference(nn.Sequential(*layers), torch.randn(batch, width))


def transformer_layer(size: str = "small") -> Step:
    """One encoder layer written out: attention, two norms, a feed-forward part with GELU."""
    torch.manual_seed(0)
    batch, length, width, heads = _pick(size, (2, 16, 64, 4), (4, 64, 128, 4), (8, 128, 256, 8))
    return _inference(_Layer(width, heads), torch.randn(batch, length, width))


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.second(x))))


def conv_net(size: str = "small") -> Step:
    """Convolutions, batch norm, ReLU and max-pooling."""
    torch.manual_seed(0)
    batch, channels, side = _pick(size, (1, 16, 16), (4, 32, 32), (8, 64, 64))
    layers: list[nn.Module] = []
    before = 3
    for _ in range(3):
        layers += [nn.Conv2d(before, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(2)]
        before = channels
    return _inference(nn.Sequential(*layers), torch.randn(batch, 3, side, side))


def lstm(size: str = "small") -> Step:
    """One LSTM layer and a linear head."""
    torch.manual_seed(0)
    batch, length, width = _pick(size, (2, 8, 32), (8, 32, 128), (16, 64, 256))
    return _inference(_Recurrent(width), torch.randn(batch, length, width))


class _Recurrent(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.cells, self.head = nn.LSTM(width, width, batch_first=True), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cells(x)[0][:, -1])


def norm_chain(size: str = "small") -> Step:
    """Layer norms, softmax and RMS norms in a row, with additions between."""
    torch.manual_seed(0)
    rows, width = _pick(size, (16, 64), (256, 256), (2048, 1024))
    return _inference(_Norms(width), torch.randn(rows, width))


class _Norms(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm in self.norms:
            x = x + norm(x)
            x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.gain
        return torch.softmax(x, -1)


def pointwise_chain(size: str = "small") -> Step:
    """A dozen pointwise operators, some of them transcendental."""
    torch.manual_seed(0)
    (count,) = _pick(size, (1024,), (65536,), (4194304,))
    x, y = torch.randn(count), torch.rand(count)

    def step() -> torch.Tensor:
        with torch.no_grad():
            z = torch.tanh(x * y + 0.5)
            z = torch.sigmoid(z) * x - y
            z = z * z + torch.exp(-y)
            return torch.where(z > 0, z, 0.1 * z) / (1 + z.abs())

    return step


def optimizer_step(size: str = "small") -> Step:
    """Adam written by hand over eight tensors, in place."""
    torch.manual_seed(0)
    (side,) = _pick(size, (16,), (128,), (768,))
    params, grads, first, second = ([torch.randn(side, side) * 0.1 for _ in range(8)] for _ in range(4))
    second = [t.square() for t in second]

    def step() -> list[torch.Tensor]:
        with torch.no_grad():
            for p, g, m, v in zip(params, grads, first, second, strict=True):
                m.mul_(0.9).add_(g, alpha=0.1)
                v.mul_(0.999).addcmul_(g, g, value=0.001)
                p.addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)
        return [p[0, :1].clone() for p in params]

    return step


def embedding(size: str = "small") -> Step:
    """Rows looked up in a table, averaged, and a linear head."""
    torch.manual_seed(0)
    batch, length, rows, width = _pick(size, (8, 16, 1000, 32), (64, 32, 10000, 64), (256, 64, 100000, 128))
    return _inference(_Bag(rows, width), torch.randint(rows, (batch, length)))


class _Bag(nn.Module):
    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(rows, width), nn.Linear(width, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(tokens).mean(1))


MODELS: Mapping[str, Callable[[str], Step]] = {
    "mlp": mlp,
    "transformer layer": transformer_layer,
    "conv net": conv_net,
    "lstm": lstm,
    "norm chain": norm_chain,
    "pointwise chain": pointwise_chain,
    "optimizer step": optimizer_step,
    "embedding": embedding,
}
