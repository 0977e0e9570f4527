"""What are the fifty commonest operators made of, here? Writes the table of the documentation.

    python benchmarks/anatomy_table.py docs/operators.md

The commonest: those that transformers, convolutional networks and their training steps call most. Each is taken apart
as people write it, with small operands and gradients wanted where it has them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from measuring import machine

_NAMES = """
aten.add.Tensor aten.sub.Tensor aten.mul.Tensor aten.div.Tensor aten.pow.Tensor_Scalar aten.neg aten.exp aten.log
aten.sqrt aten.rsqrt aten.sin aten.cos aten.tanh aten.sigmoid aten.relu aten.gelu aten.silu aten.maximum aten.clamp
aten.where.self aten.eq.Tensor aten.lt.Tensor aten.sum.dim_IntList aten.mean.dim aten.amax aten.argmax aten.cumsum
aten._softmax aten._log_softmax aten.native_layer_norm aten.mm aten.bmm aten.addmm aten.linear aten.matmul
aten.convolution aten.embedding aten.index_select aten.gather aten.masked_fill.Scalar aten.cat aten.stack aten.view
aten.transpose.int aten.permute aten.select.int aten.slice.Tensor aten.expand aten.clone aten.copy_ aten.add_.Tensor
aten.zeros aten.empty.memory_format
"""
OPERATORS = tuple(_NAMES.split())


def row(name: str, device: Any) -> tuple[str, float | None]:
    """One line of the table and its remainder to the whole; the reason where there is no ladder."""
    from referee.anatomy.dissect import dissect
    from referee.anatomy.stages import LAYERS
    from referee.errors import RefereeError

    try:
        found = dissect(name, device=device, budget_ns=500_000_000)
    except RefereeError as error:
        return f"| `{name}` | {error.message} |" + " |" * (len(LAYERS) + 2), None
    layers: dict[str, float] = {}
    for stage in found.stages:
        layers[stage.layer] = layers.get(stage.layer, 0.0) + stage.ns
    cells = [f"{layers[layer]:,.0f}" if layer in layers else "–" for layer in LAYERS]
    whole, cold = found.whole_ns or 0.0, found.whole_cold_ns or 0.0
    rest = found.remainder_ns or 0.0
    line = f"| `{found.entry}` | {whole:,.0f} | {cold:,.0f} | " + " | ".join(cells) + f" | {rest:,.0f} |"
    return line, rest / whole if whole else None


def main() -> None:
    """Take them apart one after the other and write the page."""
    import torch

    from referee.anatomy.stages import LAYERS
    from referee.device.registry import open_device

    torch.set_num_threads(1)
    device = open_device("cpu")
    rows = [row(name, device) for name in OPERATORS]
    shares = [abs(share) for _, share in rows if share is not None]
    within = [sum(share <= bound for share in shares) for bound in (0.05, 0.10)]
    head = ["Call", "Whole", "Cold", *(layer[0].upper() + layer[1:] for layer in LAYERS), "Remainder"]
    lines = [
        "# What common operators are made of",
        "",
        f"Nanoseconds per call on {machine()}; torch {torch.__version__}, one thread, operands of 8 to some hundred"
        " numbers, gradients wanted where the operator has them. *Whole* is hot, *Cold* amid other operators. Layers"
        " are differences of calls that stop at neighbouring depths; negative ones are kept. Below 50 ns a figure says"
        " little more than that. Written by `benchmarks/anatomy_table.py`; take your own with"
        " `referee anatomy aten.add.Tensor`, and all operators with `referee anatomy --all aten`.",
        "",
        "| " + " | ".join(head) + " |",
        "|---|" + "---:|" * (len(head) - 1),
        *(line for line, _ in rows),
        "",
        "The remainder, by which the stages timed one by one miss the whole timed by itself, is at most 5 % of the"
        f" whole for {within[0]} of {len(shares)} calls and at most 10 % for {within[1]}; the largest is"
        f" {max(shares):.1%}.",
    ]
    Path(sys.argv[1]).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
