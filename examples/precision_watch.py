"""A training loop with classic mistakes of mixed precision, and the watch that names them while it runs.

Try it with::

    python examples/precision_watch.py

The loop looks like many in public repositories: autocast without a dtype (bf16 here, where a scaler is for nothing),
clipping before unscaling, a scheduler that moves on although the step was skipped, and data that hold an infinity, so
that every step is skipped in silence until the scale has fallen to 0.
"""

from __future__ import annotations

import torch
from torch import nn

from referee.precision import ScaleCollapsed, Seen, watch

FEATURES, CLASSES, BATCH, STEPS = 32, 4, 16, 250
POISONED_FROM = 8
"""From this step on the data hold an infinity: every step is skipped, silently."""


def train(steps: int = STEPS) -> None:
    """The loop as somebody wrote it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10)
    scaler = torch.amp.GradScaler("cpu")
    for step in range(steps):
        inputs = torch.randn(BATCH, FEATURES)
        if step >= POISONED_FROM:
            inputs[0, 0] = float("inf")
        optimizer.zero_grad()
        with torch.autocast("cpu"):
            loss = nn.functional.cross_entropy(model(inputs), torch.randint(CLASSES, (BATCH,)))
        scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()


def main() -> Seen:
    """Train under the watch and print what it saw."""
    with watch(announce=lambda finding: print(f"{finding.severity}: {finding.message}")) as seen:
        try:
            train()
        except ScaleCollapsed as stopped:
            print(f"stopped: {stopped}")
    print(f"{seen.skipped} of {seen.scaler_steps} steps were skipped")
    for finding in seen.findings:
        print(f"{finding.code}, {finding.evidence['times']} times: {finding.hint}")
    return seen


if __name__ == "__main__":
    main()
