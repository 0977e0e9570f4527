"""Does a repeated call do its work again? Steps that do, that keep a result, a copy of it or a part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch")

from referee.device.registry import open_device  # noqa: E402
from referee.device.repeats import hands_out_kept, see_repeat  # noqa: E402

Step = Callable[[], object]


def product() -> Step:
    x = torch.randn(32, 32)
    return lambda: x @ x + 1


def in_place() -> Step:
    x = torch.randn(32)
    return lambda: x.mul_(1.0001)


def into_a_buffer() -> Step:
    x, out = torch.randn(32, 32), torch.empty(32, 32)
    return lambda: torch.mm(x, x, out=out)


def training() -> Step:
    model = torch.nn.Linear(8, 8)
    optimizer, x = torch.optim.Adam(model.parameters()), torch.randn(4, 8)

    def step() -> object:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    return step


def kept(hand_out: Callable[[torch.Tensor], object]) -> Callable[[], Step]:
    def make() -> Step:
        x = torch.randn(32, 32)
        held: list[torch.Tensor] = []

        def step() -> object:
            if not held:
                held.append((x @ x).relu())
            return hand_out(held[0])

        return step

    return make


def set_up_at_first() -> Step:
    model, x = torch.nn.LazyLinear(8), torch.randn(4, 8)
    return lambda: model(x)


@pytest.mark.parametrize(
    ("make", "again"),
    [
        (product, "all"),
        (in_place, "all"),
        (into_a_buffer, "all"),
        (training, "part"),  # the optimizer makes its state in the first step
        (kept(lambda result: result), "none"),
        (kept(lambda result: result.clone()), "none"),
        (kept(lambda result: result + 1), "part"),
        (set_up_at_first, "part"),
    ],
)
def test_operators_tell(make: Callable[[], Step], again: str) -> None:
    step = make()
    step()
    seen = see_repeat(step, make)
    assert seen is not None
    assert seen.again == again
    assert seen.first_ops is not None
    assert (seen.again_ops == seen.first_ops) == (again == "all")


class Foreign:
    """Work that no operator shows: tensors are filled by another library."""

    def __init__(self, *, keep: bool) -> None:
        self.held: list[object] = []
        self.keep = keep

    def __call__(self) -> object:
        if not self.held or not self.keep:
            self.held.append(torch.utils.dlpack.from_dlpack(_array()))
        return self.held[-1]


def _array() -> object:
    import numpy as np

    return np.full(1000, 2.0)


@pytest.mark.parametrize(("keep", "again"), [(True, "none"), (False, "all")])
def test_without_operators_the_memory_of_the_outputs_tells(keep: bool, again: str) -> None:
    step = Foreign(keep=keep)
    step()
    seen = see_repeat(step, lambda: Foreign(keep=keep))
    assert seen is not None
    assert (seen.again, seen.first_ops) == (again, 0)


def written_elsewhere(*, dtype: torch.dtype = torch.float32) -> Step:
    """Another library writes into a tensor's memory: torch counts no write to it."""
    import numpy as np

    x, out = np.linspace(1, 2, 1000), torch.zeros(1000, dtype=dtype)
    memory = out.numpy()

    def step() -> object:
        np.multiply(x, 2, out=memory, casting="unsafe")
        return out

    return step


def handing_over(x: torch.Tensor) -> Step:
    return lambda: x


@pytest.mark.parametrize(
    ("step", "kept"),
    [
        (written_elsewhere(), False),
        (Foreign(keep=False), False),
        (Foreign(keep=True), True),
        (handing_over(torch.randn(1000)), True),
        (handing_over(torch.randn(1000, requires_grad=True)), True),
        (handing_over(torch.randn(10, 10).t()[3:]), True),
        (handing_over(torch.arange(9)), True),
        (handing_over(torch.empty(0)), True),
        (lambda: 3, False),
    ],
)
def test_a_call_that_neither_makes_nor_writes_what_it_returns_is_told(step: Step, kept: bool) -> None:
    outputs = [leaf.detach().clone() for leaf in [step()] if isinstance(leaf, torch.Tensor)]
    versions = [leaf._version for leaf in [step()] if isinstance(leaf, torch.Tensor)]
    assert hands_out_kept(step) == kept
    again = [leaf for leaf in [step()] if isinstance(leaf, torch.Tensor)]
    assert all(torch.equal(was, now.detach()) for was, now in zip(outputs, again, strict=True))
    assert [leaf._version for leaf in again] == versions


def test_where_nothing_shows_there_is_no_answer() -> None:
    assert see_repeat(lambda: 3, lambda: lambda: 3) is None


def test_a_first_call_that_is_far_slower_is_no_result_that_is_kept() -> None:
    """Memory new to the first call, as a page that is mapped at its first touch, costs hundreds of repeated calls."""
    from referee.bench.measure import measure
    from referee.bench.plan import Plan

    def sluggish() -> Iterator[Step]:
        while True:
            x, touched = torch.randn(64, 64), [False]

            def step(x: torch.Tensor = x, touched: list[bool] = touched) -> object:
                if not touched[0]:
                    touched[0] = True
                    end = open_device("cpu").now_ns() + 3_000_000
                    while open_device("cpu").now_ns() < end:
                        pass
                return x * 2

            yield step

    steps = sluggish()
    found = measure(next(steps), device=open_device("cpu"), plan=Plan(budget_ns=100_000_000), fresh=lambda: next(steps))
    assert not {"cached-result", "part-kept"} & {finding.code for finding in found.findings}
