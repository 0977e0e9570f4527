"""The lazy backend of torch itself: what runs is counted by its own metrics, not guessed from times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from referee.bench.loop import cutting, issue, keeps_outputs
from referee.device.lazy import LazyDevice
from referee.device.observe import observe
from referee.device.registry import open_device

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def device() -> Iterator[LazyDevice]:
    opened = open_device("lazy")
    assert isinstance(opened, LazyDevice)
    yield opened
    opened.settle()


@pytest.fixture
def matrix(device: LazyDevice) -> Any:
    x = torch.randn(24, 24).to("lazy")
    device.settle(x)
    return x


def count(name: str) -> int:
    from torch._lazy.metrics import counter_value

    return counter_value(name) or 0


def graphs_run() -> int:
    return count("CachedCompile") + count("UncachedCompile")


def synced() -> int:
    """How many tensors have been materialised by running their graph."""
    return count("SyncedTensorsWithIR")


def test_a_call_alone_runs_nothing(device: LazyDevice, matrix: Any) -> None:
    before = graphs_run()
    kept = [matrix @ matrix for _ in range(5)]
    assert graphs_run() == before
    device.settle(kept)
    assert graphs_run() == before + 1


def test_settling_the_last_output_alone_leaves_the_others_recorded(device: LazyDevice, matrix: Any) -> None:
    kept = [matrix @ matrix for _ in range(5)]
    before = synced()
    device.settle(kept[-1])
    assert synced() - before == 1
    device.settle(kept[:-1])
    assert synced() - before == 5


def test_dead_results_never_run(device: LazyDevice, matrix: Any) -> None:
    device.settle()
    before = synced()
    for _ in range(5):
        output = matrix @ matrix
    device.settle()  # everything that is still recorded
    assert synced() - before == 1
    assert output.shape == (24, 24)


def test_settling_is_on_exactly_the_outputs_given(device: LazyDevice, matrix: Any) -> None:
    """A neighbour's recorded work stays out of this window."""
    neighbour = matrix @ matrix
    ours = matrix + 1
    before = synced()
    device.settle({"out": (ours, None)})
    assert synced() - before == 1
    device.settle(neighbour)
    assert synced() - before == 2


def test_a_changing_shape_is_a_compilation_each_time(device: LazyDevice) -> None:
    def step(rows: int) -> Any:
        x = torch.zeros(rows, 8, device="lazy")
        return x + 1

    device.settle(step(8))
    before = device.counters()["UncachedCompile"]
    for _ in range(4):
        device.settle(step(8))
    assert device.counters()["UncachedCompile"] == before
    for rows in (9, 10, 11):
        device.settle(step(rows))
    assert device.counters()["UncachedCompile"] == before + 3


def test_the_value_is_right_after_settling(device: LazyDevice) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    output = x.to("lazy") @ x.T.to("lazy")
    device.settle(output)
    assert torch.equal(output.cpu(), x @ x.T)


def test_the_cpu_device_awaits_lazy_outputs_too(device: LazyDevice, matrix: Any) -> None:
    output = matrix @ matrix
    before = graphs_run()
    open_device("cpu").settle([output])
    assert graphs_run() == before + 1


def test_equal_calls_of_several_operators_each_run_when_they_are_handed_over(device: LazyDevice, matrix: Any) -> None:
    """Recorded together they would be one computation but for the last operator."""

    def step() -> Any:
        return (matrix @ matrix).relu().sum()

    graphs, outputs = graphs_run(), synced()
    device.settle(issue(step, 5, keep=keeps_outputs(device), cut=cutting(device)))
    assert (graphs_run() - graphs, synced() - outputs) == (5, 5)


def test_calls_without_inputs_each_run_when_they_are_handed_over(device: LazyDevice) -> None:
    def step() -> Any:
        return torch.ones(24, 24, device="lazy") @ torch.ones(24, 24, device="lazy")

    before = synced()
    device.settle(issue(step, 5, keep=keeps_outputs(device), cut=cutting(device)))
    assert synced() - before == 5


def test_gradients_run_with_the_call_that_is_handed_over(device: LazyDevice, matrix: Any) -> None:
    weight = torch.nn.Parameter(matrix.detach().clone())
    device.settle(weight)

    def step() -> Any:
        weight.grad = None
        loss = (matrix @ weight).square().mean()
        loss.backward()
        return loss

    seen = observe(step, device)
    assert seen.backward
    before = synced()
    device.settle(issue(step, 3, keep=keeps_outputs(device), cut=cutting(device)))
    assert synced() - before >= 2 * 3, "loss and gradient of each call"


def test_a_training_step_is_settled_whole_and_compiled_once() -> None:
    """Settling on the loss alone would leave the updates recorded: each call a longer graph, each one compiled."""
    device = LazyDevice()
    model = torch.nn.Linear(8, 8).to("lazy")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(4, 8).to("lazy")

    def step() -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    observe(step, device)
    seen = observe(step, device)
    roles = {spec.role: spec.count for spec in seen.shapes}
    assert roles == {"input": 1, "parameter": 1, "state": 1}
    assert {spec.role for spec in seen.mutated} == {"parameter", "state"}
    for _ in range(3):
        device.settle(step())
    before = device.counters()["UncachedCompile"]
    for _ in range(4):
        device.settle(step())
    assert device.counters()["UncachedCompile"] == before


def test_without_writes_exactly_the_outputs_are_settled() -> None:
    device = LazyDevice()
    x = torch.randn(4, 4).to("lazy")
    device.settle(x)
    observe(lambda: x @ x, device)
    assert not device.settles_everything
