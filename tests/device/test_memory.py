"""Memory of one call: planted allocations are read back to the byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.device.fake import FakeAsync
from referee.device.memory import fold_requests, measure_memory
from referee.device.registry import open_device
from referee.errors import EnvironmentLacks, OptionError


@given(st.lists(st.integers(-100, 100).filter(bool)))
def test_requests_are_folded(changes: list[int]) -> None:
    use = fold_requests(changes)
    running = [sum(changes[: k + 1]) for k in range(len(changes))]
    assert use.peak_bytes == max([0, *running])
    assert use.kept_bytes == sum(changes)
    assert use.allocated_bytes == sum(c for c in changes if c > 0)
    assert use.allocations == sum(c > 0 for c in changes)


@pytest.mark.torch
def test_planted_allocations_are_read_back() -> None:
    torch = pytest.importorskip("torch")

    def step() -> Any:
        first = torch.empty(1_000)
        second = torch.empty(500)
        del first
        third = torch.empty(2_000)
        del second
        return third

    use = measure_memory(step, open_device("cpu"))
    assert use.allocations == 3
    assert use.allocated_bytes == 4 * 3_500
    assert use.peak_bytes == 4 * 2_500
    assert use.kept_bytes == 4 * 2_000
    assert use.driver_allocations is None


@pytest.mark.torch
def test_the_first_call_is_not_counted() -> None:
    torch = pytest.importorskip("torch")
    kept: list[Any] = []

    def step() -> Any:
        if not kept:
            kept.append(torch.empty(10_000))
        return torch.empty(10)

    assert measure_memory(step, open_device("cpu")).allocated_bytes == 40


@pytest.mark.torch
def test_never_under_another_profiler() -> None:
    torch = pytest.importorskip("torch")
    with torch.profiler.profile(), pytest.raises(OptionError, match="while a profiler is recording"):
        measure_memory(lambda: torch.ones(1), open_device("cpu"))


@pytest.mark.torch
def test_an_allocator_that_cannot_be_watched_is_named() -> None:
    pytest.importorskip("torch")
    device = FakeAsync()
    with pytest.raises(EnvironmentLacks, match="allocator of fake-async cannot be watched"):
        measure_memory(lambda: device.run(host_ns=1), device)
