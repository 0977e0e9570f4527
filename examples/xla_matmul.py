"""The third trap on the real XLA bridge: a call records, cutting the graph hands it over, only a wait means done.

Try it in an environment with ``torch_xla`` (``make test-xla`` makes one in ``.venv-xla``)::

    PJRT_DEVICE=CPU referee bench examples/xla_matmul.py:chain --device xla
    PJRT_DEVICE=CPU referee bench examples/xla_matmul.py:chain --device xla --dtype bfloat16
    PJRT_DEVICE=CPU referee bench examples/xla_matmul.py:ragged --device xla

``chain`` is what a plain timer gets wrong by two orders of magnitude. ``ragged`` hands over a longer batch with each
call, as a loader without padding does: every call is compiled anew, which is refused by name. ``padded`` is its mend.
``loop`` records one product ten times in one step, and the compiler merges them: a finding says that one is timed.
"""

from __future__ import annotations

from itertools import count

import torch

SIDE, LENGTH, WIDTH = 512, 20, 64


def chain(device: str = "cpu", dtype: torch.dtype = torch.float32):
    """Twenty matrix products in a row, each through a tanh."""
    torch.manual_seed(0)
    x = torch.randn(SIDE, SIDE).to(device=device, dtype=dtype)

    def step() -> torch.Tensor:
        y = x
        for _ in range(LENGTH):
            y = torch.tanh(y @ x)
        return y

    return step


def ragged(device: str = "cpu", dtype: torch.dtype = torch.float32):
    """Scores of a batch that is one row longer with each call."""
    torch.manual_seed(0)
    weight = torch.randn(WIDTH, WIDTH).to(device=device, dtype=dtype)
    rows = count(WIDTH)

    def step() -> torch.Tensor:
        batch = torch.randn(next(rows), WIDTH).to(device=device, dtype=dtype)
        return torch.relu(batch @ weight)

    return step


def padded(device: str = "cpu", dtype: torch.dtype = torch.float32):
    """The same scores with every batch padded to one number of rows: compiled once."""
    torch.manual_seed(0)
    weight = torch.randn(WIDTH, WIDTH).to(device=device, dtype=dtype)
    rows, most = count(), 2 * WIDTH

    def step() -> torch.Tensor:
        filled = WIDTH + next(rows) % WIDTH
        batch = torch.zeros(most, WIDTH)
        batch[:filled] = torch.randn(filled, WIDTH)
        return torch.relu(batch.to(device=device, dtype=dtype) @ weight)

    return step


def loop(device: str = "cpu", dtype: torch.dtype = torch.float32):
    """Ten times the same product, every result kept."""
    torch.manual_seed(0)
    x = torch.randn(SIDE, SIDE).to(device=device, dtype=dtype)
    return lambda: [x @ x for _ in range(10)]
