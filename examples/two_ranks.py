"""Data-parallel training on two processes, each of which records its own trace of the same iterations.

Try it with::

    torchrun --nproc-per-node 2 examples/two_ranks.py traces
    referee trace traces

Each rank writes ``two_ranks.rankN.0.pt.trace.json.gz`` with its provenance beside it: rank, world size, host, and how
far its clock is from that of rank 0.
"""

from __future__ import annotations

import sys

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from referee.capture import Capture, Plan


def main(out_dir: str) -> None:
    """Train a few steps and record three of them."""
    distributed.init_process_group("gloo")
    torch.manual_seed(distributed.get_rank())
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Capture(out_dir=out_dir, name="two_ranks", plan=Plan.of(wait=2, warmup=1, active=3)) as capture:
        for _ in capture.over(range(8)):
            optimizer.zero_grad()
            model(torch.randn(32, 64)).square().mean().backward()
            optimizer.step()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "traces")
