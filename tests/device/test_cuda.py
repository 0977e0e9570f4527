"""The CUDA lane: what only a CUDA or ROCm device can show. Skipped where there is none."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import pytest

from referee.device.cache import Flusher
from referee.device.cuda import CudaDevice, CudaTimer
from referee.device.graph_replay import capture_graph
from referee.device.memory import measure_memory
from referee.device.observe import observe
from referee.device.registry import open_device
from referee.errors import OptionError

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.cuda]

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two CUDA devices here")


def test_graph_replay_is_for_cuda_alone() -> None:
    with pytest.raises(OptionError, match="needs a CUDA device, not cpu"):
        capture_graph(lambda: None, device="cpu")


@pytest.fixture
def device() -> CudaDevice:
    opened = open_device("cuda:0")
    assert isinstance(opened, CudaDevice)
    return opened


def long_work(size: int = 4096, times: int = 8) -> Callable[[], Any]:
    """Some milliseconds of device work that is queued in microseconds."""
    x = torch.randn(size, size, device="cuda:0")

    def step() -> Any:
        y = x
        for _ in range(times):
            y = x @ y
            y = y / y.norm()
        return y

    step()
    torch.cuda.synchronize()
    return step


def times_ns(device: CudaDevice, call: Callable[[], object], runs: int = 9) -> float:
    found = []
    for _ in range(runs):
        torch.cuda.synchronize()
        start_ns = device.now_ns()
        call()
        found.append(device.now_ns() - start_ns)
    return statistics.median(found)


@needs_cuda
def test_an_unsettled_clock_reads_the_enqueue_alone(device: CudaDevice) -> None:
    step = long_work()
    unsettled = times_ns(device, step)
    settled = times_ns(device, lambda: device.settle(step()))
    barrier = times_ns(device, lambda: (step(), torch.cuda.synchronize()))
    assert unsettled < settled / 2
    assert settled == pytest.approx(barrier, rel=0.1)


@needs_cuda
def test_settling_leaves_no_stream_busy(device: CudaDevice) -> None:
    step = long_work()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        output = step()
    device.settle(output)
    assert side.query()


@needs_cuda
def test_device_time_is_that_of_the_events(device: CudaDevice) -> None:
    step = long_work()
    timer = device.timer()
    assert timer is not None
    timer.start()
    output = step()
    timer.stop()
    elapsed_ns = timer.elapsed_ns()
    device.settle(output)
    assert elapsed_ns == pytest.approx(times_ns(device, lambda: device.settle(step())), rel=0.25)


@needs_cuda
def test_work_on_another_stream_is_noticed(device: CudaDevice) -> None:
    step = long_work()
    side = torch.cuda.Stream()
    timer = device.timer()
    assert isinstance(timer, CudaTimer)
    timer.start()
    with torch.cuda.stream(side):
        step()
    timer.stop()
    elapsed_ns = timer.elapsed_ns()
    assert timer.uncovered_ns is not None
    assert timer.uncovered_ns > elapsed_ns

    def two_streams() -> Any:
        with torch.cuda.stream(side):
            return step() + 1

    seen = observe(lambda: (step(), two_streams()), device)
    assert seen.streams == 2
    assert observe(step, device).streams == 1


@needs_cuda
def test_holding_the_stream_takes_launch_gaps_out(device: CudaDevice) -> None:
    x = torch.randn(32, device="cuda:0")

    def many_small() -> Any:
        y = x
        for _ in range(200):
            y = y + 1
        return y

    def device_ns(hold_ns: int) -> float:
        readings = []
        for _ in range(9):
            torch.cuda.synchronize()
            if hold_ns:
                device.hold(hold_ns)
            timer = device.timer()
            assert timer is not None
            timer.start()
            many_small()
            timer.stop()
            readings.append(timer.elapsed_ns())
        return statistics.median(readings)

    device_ns(0)
    assert device_ns(20_000_000) < device_ns(0)


@needs_cuda
def test_a_replayed_graph_computes_the_same_in_one_launch(device: CudaDevice) -> None:
    x = torch.randn(64, 64, device="cuda:0")

    def step() -> Any:
        y = x
        for _ in range(50):
            y = torch.relu(y @ x) + 1
            y = y / y.norm()
        return y

    expected = step()
    replay = capture_graph(step, device="cuda:0")
    output = replay()
    device.settle(output)
    torch.testing.assert_close(output, expected)
    assert times_ns(device, replay) < times_ns(device, step)


@needs_cuda
def test_a_step_that_synchronises_cannot_be_captured() -> None:
    """In a process of its own: a failed capture may leave the context unusable."""
    import subprocess
    import sys

    code = (
        "import torch\n"
        "from referee.device.graph_replay import capture_graph\n"
        "from referee.errors import StepError\n"
        "x = torch.ones(4, device='cuda:0')\n"
        "try:\n"
        "    capture_graph(lambda: x * x.sum().item(), device='cuda:0')\n"
        "except StepError as error:\n"
        "    print('refused:', error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "refused: The step cannot be captured as a CUDA graph" in done.stdout


@needs_cuda
def test_planted_allocations_are_read_back(device: CudaDevice) -> None:
    def step() -> Any:
        first = torch.empty(1 << 20, device="cuda:0")
        second = torch.empty(1 << 20, device="cuda:0")
        del first
        return second

    use = measure_memory(step, device)
    assert use.allocations == 2
    assert use.peak_bytes == 2 * (4 << 20)
    assert use.kept_bytes == 4 << 20
    assert use.driver_allocations == 0


@needs_cuda
def test_a_flush_makes_the_second_level_cache_cold(device: CudaDevice) -> None:
    assert Flusher(device).check().works


@needs_cuda
def test_the_description_has_what_every_gpu_has(device: CudaDevice) -> None:
    described = device.describe()
    assert described is not None
    assert described["name"] == torch.cuda.get_device_name(0)
    assert described["sm_count"] == torch.cuda.get_device_properties(0).multi_processor_count


@needs_two
def test_outputs_on_another_device_are_awaited(device: CudaDevice) -> None:
    x = torch.randn(4096, 4096, device="cuda:1")
    torch.cuda.synchronize(1)
    output = x @ x
    for _ in range(8):
        output = output @ x
    device.settle(output)
    event = torch.cuda.Event()
    with torch.cuda.device(1):
        event.record()
        assert event.query()
