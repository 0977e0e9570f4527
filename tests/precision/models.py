"""Ten families of small models, each as a training step up to its backward: what the audit is tried on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from referee.precision.subject import Subject, make_subject

Step = Callable[[], Any]


def made(model: nn.Module, loss: Callable[[nn.Module], torch.Tensor]) -> tuple[nn.Module, Step]:
    def step() -> torch.Tensor:
        model.zero_grad(set_to_none=True)
        value = loss(model)
        value.backward()
        return value.detach()

    return model, step


def perceptron() -> tuple[nn.Module, Step]:
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))
    x, y = torch.randn(8, 16), torch.randint(4, (8,))
    return made(model, lambda m: F.cross_entropy(m(x), y))


def residual_net() -> tuple[nn.Module, Step]:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
            self.head = nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = F.max_pool2d(F.relu(self.stem(x)), 2)
            x = x + F.relu(self.norm(self.conv(x)))
            return self.head(x.mean((2, 3)))

    x, y = torch.randn(4, 3, 12, 12), torch.randint(4, (4,))
    return made(Net(), lambda m: F.cross_entropy(m(x), y))


def transformer() -> tuple[nn.Module, Step]:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Embedding(20, 16), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    x = torch.randint(20, (2, 6))
    return made(model, lambda m: m(x).square().mean())


def causal_attention() -> tuple[nn.Module, Step]:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out, self.norm = nn.Linear(16, 48), nn.Linear(16, 16), nn.LayerNorm(16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (t.view(2, 6, 2, 8).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, dim=-1))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return x + self.out(mixed.transpose(1, 2).reshape(2, 6, 16))

    x = torch.randn(2, 6, 16)
    return made(Attention(), lambda m: F.smooth_l1_loss(m(x), x))


def recurrent_cells() -> tuple[nn.Module, Step]:
    class Cells(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.GRUCell(8, 16), nn.Linear(16, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = torch.zeros(x.shape[1], 16)
            for row in x:
                h = self.cell(row, h)
            return self.head(h)

    x = torch.randn(5, 3, 8)
    return made(Cells(), lambda m: F.mse_loss(m(x), torch.zeros(3, 1)))


def recommender() -> tuple[nn.Module, Step]:
    class Ranker(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.users, self.dense = nn.EmbeddingBag(30, 8, mode="sum"), nn.Linear(4, 8)
            self.top = nn.Sequential(nn.Linear(9, 8), nn.ReLU(), nn.Linear(8, 1))

        def forward(self, ids: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
            a, b = self.users(ids), self.dense(dense)
            crossed = torch.bmm(a.unsqueeze(1), b.unsqueeze(2)).squeeze(2)
            return self.top(torch.cat([b, crossed], dim=1)).squeeze(1)

    ids, dense, y = torch.randint(30, (6, 3)), torch.randn(6, 4), torch.rand(6)
    return made(Ranker(), lambda m: F.binary_cross_entropy_with_logits(m(ids, dense), y))


def graph_net() -> tuple[nn.Module, Step]:
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.message, self.update = nn.Linear(8, 8), nn.Linear(16, 8)

        def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            sent = self.message(nodes[edges[0]])
            received = torch.zeros(nodes.shape[0], 8, dtype=sent.dtype).index_add(0, edges[1], sent)
            return self.update(torch.cat([nodes, received.to(nodes.dtype)], dim=1)).relu()

    nodes, edges = torch.randn(7, 8), torch.randint(7, (2, 12))
    return made(Graph(), lambda m: m(nodes, edges).sum())


def autoencoder() -> tuple[nn.Module, Step]:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1),
        nn.GroupNorm(2, 4),
        nn.SiLU(),
        nn.ConvTranspose2d(4, 1, 4, stride=2, padding=1),
        nn.Sigmoid(),
    )
    x = torch.rand(2, 1, 8, 8)
    return made(model, lambda m: F.mse_loss(m(x), x))


def variational() -> tuple[nn.Module, Step]:
    class Variational(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode, self.decode = nn.Linear(12, 8), nn.Linear(4, 12)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mean, log_variance = self.encode(x).chunk(2, dim=1)
            z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
            divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
            return F.l1_loss(self.decode(z), x) + divergence

    x = torch.randn(5, 12)
    return made(Variational(), lambda m: m(x))


def siamese() -> tuple[nn.Module, Step]:
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.PReLU(), nn.Flatten(), nn.Linear(24, 8), nn.Softmax(dim=1))
    x, y = torch.randn(3, 2, 8), torch.randn(3, 2, 8)
    return made(model, lambda m: 1 - F.cosine_similarity(m(x), m(y)).mean())


FAMILIES: dict[str, Callable[[], tuple[nn.Module, Step]]] = {
    "perceptron": perceptron,
    "residual net": residual_net,
    "transformer": transformer,
    "causal attention": causal_attention,
    "recurrent cells": recurrent_cells,
    "recommender": recommender,
    "graph net": graph_net,
    "autoencoder": autoencoder,
    "variational": variational,
    "siamese": siamese,
}


def training(*, returns_loss: bool = False, scaler: bool = False, own_autocast: bool = False) -> tuple[Step, Any, Any]:
    """A step with everything that has state: dropout, running statistics, Adam, a held input."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    inputs, targets = torch.randn(16, 6), torch.randint(3, (16,))
    scales = torch.amp.GradScaler("cpu", init_scale=1024.0) if scaler else None

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16) if own_autocast else nullcontext():
            loss = F.cross_entropy(model(inputs), targets)
        if returns_loss:
            return loss
        if scales is None:
            loss.backward()
            optimizer.step()
        else:
            scales.scale(loss).backward()
            scales.step(optimizer)
            scales.update()
        return loss.detach()

    return step, model, optimizer


def subject_of(made: tuple[Step, Any, Any], **options: Any) -> Subject:
    step, model, optimizer = made
    return make_subject(step, device_type="cpu", model=model, optimizer=optimizer, **options)
