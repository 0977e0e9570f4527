"""Costs that people reported, looked up by the anatomy: is the right answer in its rows?

    python benchmarks/anatomy_cases.py

Each case names two ways of one group and by how much the dearer one is at least dearer. Ratios are far above what a
busy machine does to them.
"""

from __future__ import annotations

from dataclasses import dataclass

from measuring import machine, print_table


@dataclass(frozen=True)
class Case:
    """``dear`` costs at least ``factor`` times ``cheap``, in one group of one operator's variants."""

    name: str
    operator: str
    group: str
    cheap: str
    dear: str
    factor: float


CASES = (
    Case("explicit overload", "aten.sin", "spelling", "torch.sin", "the overload, looked up before", 1.2),
    Case(
        "custom_op over autograd.Function",
        "aten.add.Tensor",
        "wrapper",
        "autograd.Function",
        "torch.library.custom_op",
        1.3,
    ),
    Case(
        "custom_op over define/impl",
        "aten.add.Tensor",
        "wrapper",
        "torch.library define and impl",
        "torch.library.custom_op",
        1.5,
    ),
    Case("empty tensor subclass", "aten.mul.Tensor", "wrapper", "bare", "tensor subclass, empty", 2.5),
    Case("dispatch mode active", "aten.mul.Tensor", "mode", "plain", "TorchDispatchMode active", 2.0),
    Case("module call", "aten.mul.Tensor", "wrapper", "bare", "module call", 1.3),
    Case("compiled, tiny work", "aten.add.Tensor", "wrapper", "bare", "torch.compile", 2.0),
    Case(
        "compiled, gradient wanted",
        "aten.add.Tensor",
        "wrapper",
        "torch.compile",
        "torch.compile, gradient wanted",
        1.4,
    ),
    Case(
        "Python number as operand",
        "aten.add.Tensor",
        "second operand",
        "tensor of the same shape and dtype",
        "Python number",
        1.3,
    ),
    Case(
        "promoted operand",
        "aten.add.Tensor",
        "second operand",
        "tensor of the same shape and dtype",
        "int64 operand",
        1.2,
    ),
    Case("strided, not vectorised", "aten.mul.Tensor", "layout, 64×64", "contiguous", "every second number", 1.2),
)


def main() -> None:
    """Time the groups of each operator once, and look the cases up."""
    import torch

    from referee.anatomy.operator import find_operator
    from referee.anatomy.variants import make_groups, time_groups
    from referee.device.registry import open_device

    torch.set_num_threads(1)
    print(machine())
    found: dict[tuple[str, str, str], float] = {}
    for operator in dict.fromkeys(case.operator for case in CASES):
        groups = make_groups(find_operator(operator), compiled=True)
        for variant in time_groups(groups, device=open_device("cpu"), budget_ns=3_000_000_000):
            found[operator, variant.group, variant.name] = variant.ns or 0.0
    rows, wrong = [], 0
    for case in CASES:
        cheap, dear = (found[case.operator, case.group, name] for name in (case.cheap, case.dear))
        right = dear >= case.factor * cheap
        wrong += not right
        rows.append((case.name, cheap, dear, dear / cheap, case.factor, "yes" if right else "NO"))
    print_table("cases", ("case", "cheap ns", "dear ns", "ratio", "at least", "right"), rows)
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
