"""Steps on which the calibrated cost of the profiler is checked: the examples, and others of quite different make.

The first eleven were looked at when the chain was laid out as it is; those of ``UNSEEN`` were written afterwards.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
Step = Callable[[], Any]


def example(file: str, name: str, batch_size: int) -> Step:
    """A step of an example."""
    spec = importlib.util.spec_from_file_location(file, EXAMPLES / f"{file}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    step: Step = getattr(module, name)(batch_size=batch_size)
    return step


def lstm() -> Step:
    """Two layers over 20 tokens: few operators, each with a loop of its own inside."""
    torch.manual_seed(0)
    layers, head = nn.LSTM(32, 48, 2), nn.Linear(48, 8)
    optimizer = torch.optim.SGD([*layers.parameters(), *head.parameters()], lr=0.01)
    inputs = torch.randn(20, 8, 32)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = head(layers(inputs)[0][-1]).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def mlp_in_a_loop() -> Step:
    """Four small layers run ten times over, with a backward pass through all of it: nothing but overhead."""
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))
    inputs = torch.randn(16, 32)

    def step() -> torch.Tensor:
        hidden, total = inputs, torch.zeros(())
        for turn in range(10):
            for layer in layers:
                hidden = torch.relu(layer(hidden))
            hidden = hidden / (hidden.abs().amax() + 1e-3)
            total = total + hidden[turn, :4].sum()
        total.backward()
        layers.zero_grad()
        return total.detach()

    return step


def optimizer_step() -> Step:
    """AdamW over 40 parameters, one after the other: the cheapest rows there are."""
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(32, 32)) for _ in range(40)]
    for parameter in parameters:
        parameter.grad = torch.randn(32, 32)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, foreach=False)

    def step() -> torch.Tensor:
        optimizer.step()
        return parameters[0].detach()

    return step


def embedding_bags() -> Step:
    """Eight tables looked up, a small network on top, and Adagrad."""
    torch.manual_seed(0)
    tables = nn.ModuleList(nn.EmbeddingBag(1000, 16, mode="sum") for _ in range(8))
    top = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))
    looked_up = [torch.randint(1000, (256,)) for _ in range(8)]
    bags = torch.arange(0, 256, 8)
    optimizer = torch.optim.Adagrad([*tables.parameters(), *top.parameters()], lr=0.01)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        found = [table(indices, bags) for table, indices in zip(tables, looked_up, strict=True)]
        loss = top(torch.cat(found, 1)).sigmoid().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def gru_by_hand() -> Step:
    """A recurrent cell written out in operators, 24 tokens, with its backward pass and RMSprop."""
    torch.manual_seed(0)
    cell = nn.GRUCell(24, 24)
    optimizer = torch.optim.RMSprop(cell.parameters(), lr=1e-3)
    tokens = torch.randn(24, 4, 24)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        hidden = torch.zeros(4, 24)
        for token in tokens:
            update = torch.sigmoid(token @ cell.weight_ih[:24].t() + hidden @ cell.weight_hh[:24].t())
            candidate = torch.tanh(token @ cell.weight_ih[24:48].t() + hidden @ cell.weight_hh[24:48].t())
            hidden = (1 - update) * hidden + update * candidate
        loss = hidden.square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def decode() -> Step:
    """Greedy decoding of 16 tokens by one attention layer with a cache, in inference mode."""
    torch.manual_seed(0)
    table, query, key, value = (torch.randn(rows, 32) / 6 for rows in (100, 32, 32, 32))

    @torch.inference_mode()
    def step() -> torch.Tensor:
        token, keys, values = torch.zeros(1, dtype=torch.long), [], []
        for _ in range(16):
            hidden = table[token]
            keys.append(hidden @ key)
            values.append(hidden @ value)
            weights = torch.softmax((hidden @ query) @ torch.cat(keys).t() / 5.7, -1)
            token = ((weights @ torch.cat(values) + hidden) @ table.t()).argmax(-1)
        return token

    return step


def two_networks() -> Step:
    """A generator and a critic, trained in turn with Adam, one parameter after the other."""
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(8, 64), nn.LeakyReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 16))
    critic = nn.Sequential(nn.Linear(16, 64), nn.LeakyReLU(), nn.Dropout(0.2), nn.Linear(64, 1))
    optimizers = [torch.optim.Adam(net.parameters(), lr=1e-3, foreach=False) for net in (critic, generator)]
    real, noise, truth = torch.randn(32, 16), torch.randn(32, 8), torch.ones(32, 1)
    loss_of = nn.BCEWithLogitsLoss()

    def step() -> torch.Tensor:
        losses = loss_of(critic(real), truth) + loss_of(critic(generator(noise).detach()), 1 - truth)
        losses.backward()
        optimizers[0].step()
        optimizers[0].zero_grad()
        fooled = loss_of(critic(generator(noise)), truth)
        fooled.backward()
        optimizers[1].step()
        optimizers[1].zero_grad()
        return fooled.detach()

    return step


def unet() -> Step:
    """A small encoder and decoder of images with skips, pooled and upsampled: large operators, few of them."""
    torch.manual_seed(0)
    down, middle, up = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(32, 3, 3, padding=1)
    parts = nn.ModuleList([down, middle, up])
    optimizer = torch.optim.SGD(parts.parameters(), lr=0.01)
    images = torch.randn(4, 3, 48, 48)

    def step() -> torch.Tensor:
        outer = torch.relu(down(images))
        inner = torch.relu(middle(nn.functional.max_pool2d(outer, 2)))
        drawn = up(torch.cat([outer, nn.functional.interpolate(inner, scale_factor=2)], 1))
        loss = (drawn - images).abs().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


UNSEEN: dict[str, Callable[[], Step]] = {
    "transformer, batch 4": lambda: example("transformer", "train_step", 4),
    "conv training, batch 4": lambda: example("convnet", "train_step", 4),
    "conv inference, batch 16": lambda: example("convnet", "infer", 16),
    "inference mode, batch 2": lambda: example("inference", "with_inference_mode", 2),
    "recurrent cell by hand": gru_by_hand,
    "decoding": decode,
    "two networks": two_networks,
    "encoder and decoder": unet,
}
STEPS: dict[str, Callable[[], Step]] = {
    "transformer, batch 8": lambda: example("transformer", "train_step", 8),
    "transformer, batch 1": lambda: example("transformer", "train_step", 1),
    "conv training, batch 8": lambda: example("convnet", "train_step", 8),
    "conv training, batch 1": lambda: example("convnet", "train_step", 1),
    "conv inference, batch 3": lambda: example("convnet", "infer", 3),
    "inference, batch 8": lambda: example("inference", "without", 8),
    "inference mode, batch 32": lambda: example("inference", "with_inference_mode", 32),
    "LSTM": lstm,
    "MLP in a loop": mlp_in_a_loop,
    "optimizer step": optimizer_step,
    "embedding bags": embedding_bags,
    **UNSEEN,
}
