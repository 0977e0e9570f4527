"""Are dispatch paths predicted as recording kernels see them, and gradients the same with and without the recording?

    python benchmarks/anatomy_witness.py [--operators aten.add.Tensor,aten.mm] [--random 100 --seed 1]

The fifty commonest operators in every mode, or as many operators of `aten` drawn by chance. A combination counts where
the mode takes the call and the witness saw it; those that torch itself refuses are told apart.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter

from anatomy_table import OPERATORS
from measuring import machine, print_table


def main() -> None:
    """Witness each operator in every mode, and print what agrees by mode, and what does not by name."""
    from referee.anatomy.arguments import make_arguments
    from referee.anatomy.operator import all_operators, find_operator
    from referee.anatomy.scenario import MODES
    from referee.anatomy.witness import witness_paths
    from referee.errors import RefereeError

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", default=",".join(OPERATORS), help="which, with commas between them")
    parser.add_argument("--random", type=int, metavar="N", help="so many of aten's operators instead")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    operators = [find_operator(name) for name in options.operators.split(",")]
    if options.random:
        operators = random.Random(options.seed).sample(all_operators("aten"), options.random)
    print(machine())
    counts: Counter[tuple[str, str]] = Counter()
    differ: list[tuple[str, str, str, str]] = []
    for operator in operators:
        try:
            paths = witness_paths(operator, make_arguments(operator), MODES)
        except RefereeError:
            counts["", "no arguments"] += 1
            continue
        for path in paths:
            kind = "refused" if path.agrees is None else "agrees" if path.agrees else "differs"
            counts[path.mode, kind] += 1
            counts[path.mode, f"gradients {path.gradients_equal}"] += 1
            if path.agrees is False or path.gradients_equal is False:
                differ.append(
                    (operator.dotted, path.mode, " ".join(path.predicted), " ".join(path.witnessed or ("nothing",)))
                )
    columns = ("agrees", "differs", "refused", "gradients True", "gradients False")
    counted = [[counts[mode, column] for column in columns] for mode in MODES]
    totals = map(sum, zip(*counted, strict=True))
    rows = [*([mode, *line] for mode, line in zip(MODES, counted, strict=True)), ["all", *totals]]
    taken = len(operators) - counts["", "no arguments"]
    titles = ("mode", "agrees", "differs", "refused", "gradients equal", "not equal")
    print_table(f"{taken} operators in {len(MODES)} modes", titles, rows)
    if differ:
        print_table("what differs", ("operator", "mode", "predicted", "witnessed"), differ)
        raise SystemExit(1)


if __name__ == "__main__":
    main()
