"""A small language model's training step: embedding, three transformer layers, loss, backward, optimizer step.

Try it with::

    referee check examples/transformer.py:train_step --batch-size 8 --values 1,2,4,8,16,32

``train_step`` is a *factory*: Referee calls it once with the batch size, device and dtype to be measured, and times
the callable that it returns. Everything that is not the step itself (weights, optimizer, batch) is made here, once.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH = 512, 64, 4, 3, 32


class LanguageModel(nn.Module):
    """Tokens in, logits of the next token out; each position sees only those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, dim_feedforward=4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens) + self.position
        return self.head(self.layers(hidden, mask=self.mask, is_causal=True))


def train_step(batch_size: int = 8, device: str = "cpu", dtype: torch.dtype = torch.float32):
    """A step that trains on one batch of random tokens and returns the loss."""
    torch.manual_seed(0)
    model = LanguageModel().to(device=device, dtype=dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(VOCABULARY, (batch_size, LENGTH + 1)).to(device)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].reshape(-1)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        logits = model(inputs)
        loss = F.cross_entropy(logits.reshape(-1, VOCABULARY).float(), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step.model, step.optimizer = model, optimizer
    return step
