"""The cause of a recompilation is planted: one thing differs from call to call, and that one is named."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, cycle
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from referee.bench.measure import measure  # noqa: E402
from referee.bench.plan import Plan  # noqa: E402
from referee.device.changes import find_change  # noqa: E402
from referee.device.fake import FakeDevice, FakeLazy, FakeOutput  # noqa: E402
from referee.device.protocol import Change  # noqa: E402
from referee.device.registry import open_device  # noqa: E402
from referee.units import NS_PER_MS  # noqa: E402

pytestmark = pytest.mark.torch


def change(step: Callable[[], object]) -> Change | None:
    return find_change(step, lambda _: None)


def test_the_dimension_of_the_input_that_changes_is_named() -> None:
    weight = torch.nn.Parameter(torch.ones(16, 4))
    sizes = count(64)
    mask = torch.ones(1, 4)

    batches = {"x": torch.ones(1)}

    def fed() -> Any:
        return torch.mul(mask, torch.matmul(batches["x"], weight))

    def feed() -> Any:
        with torch._C.DisableTorchFunction():
            batches["x"] = torch.ones(next(sizes), 16)
        return fed()

    found = change(feed)
    assert found is not None
    first = int(str(found.evidence["sizes"]).split(",")[0])
    assert found.words == (
        f"Dimension 0 of input 0 of the step (the first argument of `matmul`) is {first}, {first + 1}, {first + 2}, "
        "call by call."
    )
    assert (found.evidence["input"], found.evidence["dimension"]) == (0, "0")


def test_the_second_input_is_told_from_the_first() -> None:
    widths = count(8)
    first = torch.ones(4)

    def step() -> Any:
        with torch._C.DisableTorchFunction():
            second = torch.ones(3, next(widths), 2)
        torch.neg(first)
        return torch.relu(second)

    found = change(step)
    assert found is not None
    assert (found.evidence["input"], found.evidence["dimension"], found.evidence["sizes"]) == (1, "1", "8, 9, 10")


def test_a_tensor_made_in_the_step_is_named_by_what_makes_it() -> None:
    rows = count(8)
    found = change(lambda: torch.ones(next(rows), 16) + 1)
    assert found is not None
    assert found.words == "Dimension 0 of what `ones` makes is 8, 9, 10, call by call."


@pytest.mark.parametrize("each", [2, 3, 4])
def test_shapes_in_buckets_are_found_when_the_bucket_changes(each: int) -> None:
    rows = cycle([8] * each + [16] * each)
    found = change(lambda: torch.ones(next(rows)))
    assert found is not None
    assert set(str(found.evidence["sizes"]).split(", ")) == {"8", "16"}


def test_a_dtype_a_rank_a_value_and_another_call_are_named() -> None:
    dtypes = cycle([torch.float32, torch.float64])
    powers, ranks, calls = count(2), cycle([(4,), (2, 2)]), cycle([torch.sin, torch.cos])
    x = torch.ones(4)
    named = [
        change(lambda: torch.ones(4, dtype=next(dtypes))),
        change(lambda: torch.ones(next(ranks))),
        change(lambda: torch.pow(x, next(powers))),
        change(lambda: next(calls)(x)),
    ]
    words = [found.words for found in named if found is not None]
    assert words == [
        "The dtype of what `ones` makes is float32, float64, float32, call by call.",
        "The number of dimensions of what `ones` makes is 1, 2, 1, call by call.",
        "The second argument of `pow` is 2, 3, 4, call by call.",
        "The step calls sin, cos, sin at the same place, call by call.",
    ]


def test_a_growing_loop_is_named_by_its_length() -> None:
    turns, x = count(1), torch.ones(4)
    found = change(lambda: [torch.neg(x) for _ in range(next(turns))])
    assert found is not None
    assert found.evidence == {"calls": "1, 2, 3"}


def test_what_stays_the_same_has_no_change() -> None:
    x = torch.ones(4)
    assert change(lambda: torch.neg(x) + 1) is None


class _Telling(FakeLazy):
    """A lazy device that recompiles at every call and says what it was told."""

    def __init__(self, found: Change | Exception | None) -> None:
        super().__init__(compile_ns=1_000)
        self.found, self.asked = found, 0

    def what_changes(self, step: Callable[[], object]) -> Change | None:
        self.asked += 1
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


PLAN = Plan(budget_ns=30 * NS_PER_MS, min_ns=10 * NS_PER_MS, warmup_min_ns=NS_PER_MS)
WIDER = Change(words="Dimension 1 of input 0 is 2, 3, 4, call by call.", evidence={"dimension": "1"})


def changing(device: FakeDevice) -> Callable[[], FakeOutput]:
    width = count()
    return lambda: device.run(host_ns=5_000, device_ns=90_000, key=next(width))


def test_the_refusal_names_the_change() -> None:
    device = _Telling(WIDER)
    found = measure(changing(device), device=device, plan=PLAN)
    named = [finding for finding in found.findings if finding.code == "recompiled"]
    assert named
    assert all(finding.message.endswith(WIDER.words) and finding.evidence["dimension"] == "1" for finding in named)


@pytest.mark.parametrize("nothing", [None, StopIteration()])
def test_a_refusal_stands_without_its_cause(nothing: Exception | None) -> None:
    device = _Telling(nothing)
    found = measure(changing(device), device=device, plan=PLAN)
    assert found.median_ns is None
    assert device.asked == 1


def test_nothing_is_asked_where_nothing_was_compiled_again() -> None:
    device = _Telling(WIDER)
    found = measure(lambda: device.run(host_ns=5_000, device_ns=90_000, key="same"), device=device, plan=PLAN)
    assert found.median_ns is not None
    assert device.asked == 0


def test_compiled_code_is_not_watched_and_its_compiler_is_asked() -> None:
    rows = count(3)
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    step = lambda: compiled(torch.ones(next(rows)))  # noqa: E731
    device = open_device("cpu")
    step(), step()
    change = device.what_changes(step)
    assert change is not None
    assert "size mismatch at index 0. expected 3, actual 4" in change.words
    assert next(rows) == 5, "no further call is made"
