"""Is it noticed when the work did not run? Twelve ways of timing n calls on PyTorch's lazy backend, judged.

    python benchmarks/measuring_proof.py --repeats 20

Beside the verdict stands T(2n)/T(n), which is near 2 for patterns that never ran anything as well.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import lru_cache

import torch
from measuring import busy, machine, median, print_table

from referee.bench.proof import prove_window
from referee.bench.windows import Window
from referee.device.registry import open_device

SIZE = 384


class Patterns:
    """Ways of running n products of one size on the lazy device."""

    def __init__(self) -> None:
        self.device = open_device("lazy")
        self.x = torch.randn(SIZE, SIZE).to("lazy")
        self.inputs = [torch.randn(SIZE, SIZE).to("lazy") for _ in range(4)]
        self.device.settle(self.inputs)
        self.cached = lru_cache(maxsize=None)(lambda: self.x @ self.x)

    def fresh(self) -> Callable[[], object]:
        """The product of a matrix that was not used before."""
        y = torch.randn(SIZE, SIZE).to("lazy")
        self.device.settle(y)
        return lambda: y @ y

    def unsettled(self, n: int) -> None:
        """Waits for nothing."""
        for _ in range(n):
            self.x @ self.x

    def last_only(self, n: int) -> None:
        """Settles the last output; the others are dropped as dead."""
        out = None
        for _ in range(n):
            out = self.x @ self.x
        self.device.settle(out)

    def last_only_scalar_varied(self, n: int) -> None:
        """The same, with another scalar in each call."""
        out = None
        for k in range(n):
            out = self.x @ self.x + float(k)
        self.device.settle(out)

    def last_only_rotated(self, n: int) -> None:
        """The same, with inputs taken in turn."""
        out = None
        for k in range(n):
            out = self.inputs[k % 4] @ self.inputs[k % 4]
        self.device.settle(out)

    def chained(self, n: int) -> None:
        """Each call needs the one before."""
        out = self.x
        for _ in range(n):
            out = out @ self.x
        self.device.settle(out)

    def all_kept(self, n: int) -> None:
        """Keeps every output and settles them all."""
        self.device.settle([self.x @ self.x for _ in range(n)])

    def all_kept_rotated(self, n: int) -> None:
        """The same, with inputs taken in turn."""
        self.device.settle([self.inputs[k % 4] @ self.inputs[k % 4] for k in range(n)])

    def each_settled(self, n: int) -> None:
        """Settles after each call."""
        for _ in range(n):
            self.device.settle(self.x @ self.x)

    def each_read(self, n: int) -> None:
        """Reads a value of each output."""
        for _ in range(n):
            (self.x @ self.x)[0, 0].item()

    def kept_unsettled(self, n: int) -> object:
        """Keeps every output and waits for nothing."""
        return [self.x @ self.x for _ in range(n)]

    def cached_result(self, n: int) -> None:
        """Hands back a result that is kept."""
        self.device.settle([self.cached() for _ in range(n)])

    def other_settled(self, n: int) -> None:
        """Settles something that is not its own output."""
        for _ in range(n):
            self.x @ self.x
        self.device.settle(self.inputs[0] + 1)


TRUTH = {
    "unsettled": False,
    "last_only": False,
    "last_only_scalar_varied": False,
    "last_only_rotated": False,
    "chained": True,
    "all_kept": True,
    "all_kept_rotated": True,
    "each_settled": True,
    "each_read": True,
    "kept_unsettled": False,
    "cached_result": False,
    "other_settled": False,
}


def main() -> None:
    """Judge each pattern so many times, quiet and beside busy processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--busy", default="0,2")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(machine())
    for neighbours in map(int, options.busy.split(",")):
        rows = []
        with busy(neighbours):
            patterns = Patterns()
            for name, ran in TRUTH.items():
                window: Window = getattr(patterns, name)
                found = [
                    prove_window(window, device=patterns.device, fresh=patterns.fresh) for _ in range(options.repeats)
                ]
                wanted = "ran" if ran else "did-not-run"
                rows.append(
                    [
                        name,
                        wanted,
                        f"{sum(p.outcome == wanted for p in found)}/{len(found)}",
                        sum(p.outcome == "cannot-prove" for p in found),
                        median([p.slope_frac for p in found]),
                        median([p.ratio for p in found]),
                    ]
                )
        columns = ["pattern", "truth", "judged rightly", "cannot prove", "slope / call", "T(2n)/T(n)"]
        print_table(f"Busy {neighbours}", columns, rows)


if __name__ == "__main__":
    main()
