"""Benchmarks that people published and that were wrong, each with the answer it should have had.

On real backends only what cannot depend on the machine is asserted: counts, refusals, and factors of ten and more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

import referee
from referee.bench.measure import measure
from referee.bench.plan import Plan
from referee.bench.proof import prove_window
from referee.bench.sweep import Built, sweep
from referee.device.fake import FakeAsync, FakeLazy, FakeOutput, FakeSync
from referee.device.registry import open_device
from referee.units import NS_PER_MS

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

PLAN = Plan(budget_ns=100 * NS_PER_MS, min_ns=30 * NS_PER_MS)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_cutting_the_graph_is_not_waiting_for_it() -> None:
    """A step mark sends the graph off; without a wait for the device the loop times the tracing."""
    device = FakeLazy()

    def call(key: object = "same") -> FakeOutput:
        return device.run(host_ns=5_000, device_ns=1_000_000, key=key)  # type: ignore[arg-type]

    def marked(n: int) -> None:
        for _ in range(n):
            out = call()
            device.materialise(out)

    def marked_and_waited(n: int) -> None:
        for _ in range(n):
            out = call()
            device.materialise(out)
            device.wait()

    numbers = count()

    def fresh() -> Callable[[], object]:
        key = next(numbers)
        return lambda: call(("fresh", key))

    assert prove_window(marked, device=device, fresh=fresh).outcome == "did-not-run"
    assert prove_window(marked_and_waited, device=device, fresh=fresh).outcome == "ran"


def test_a_lazy_device_is_waited_for_where_a_naive_timer_is_not() -> None:
    device = open_device("lazy")
    x = torch.randn(256, 256).to("lazy")
    found = measure(lambda: x @ x, device=device, plan=PLAN)
    # On a busy machine there may be no headline; the blocks are there all the same, and it is them that count here.
    settled_ns = min(found.samples_ns)
    assert found.naive_ns is not None
    assert found.naive_ns < settled_ns / 10
    assert found.clocks.enqueue_ns is None or found.clocks.enqueue_ns < settled_ns / 10
    assert found.warmup.compiles >= 1


def test_shapes_that_change_on_a_lazy_device_compile_at_every_call() -> None:
    device = open_device("lazy")
    rows = count(8)

    def step() -> object:
        x = torch.ones(next(rows), 16, device="lazy")
        return x @ x.T

    found = measure(step, device=device, plan=PLAN)
    assert found.median_ns is None
    finding = next(f for f in found.findings if f.code == "recompiled")
    assert finding.severity == "fatal"


def test_a_fixed_shape_on_a_lazy_device_compiles_no_more() -> None:
    device = open_device("lazy")
    x = torch.randn(16, 16).to("lazy")
    found = measure(lambda: x @ x, device=device, plan=PLAN)
    assert "recompiled" not in [f.code for f in found.findings]


@pytest.fixture
def compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
def test_a_compiled_function_whose_shape_changes_is_refused() -> None:
    compiled = torch.compile(lambda x: (x * 2).relu(), backend="eager", dynamic=False)
    rows = count(2)
    found = referee.bench(lambda: compiled(torch.ones(next(rows), 8)), budget="200ms")
    assert found.median_ns is None
    finding = next(f for f in found.findings if f.code == "recompiled")
    assert "compile" in finding.message


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
def test_compiling_is_not_in_the_number() -> None:
    """The first call compiles; the number is the steady state, and the compilation stands apart."""
    compiled = torch.compile(lambda x: (x * 2).relu(), backend="eager")
    found = referee.bench(compiled, torch.randn(64), budget="200ms")
    assert found.warmup.compiles >= 1
    assert found.warmup.first_call_ns > 20 * min(found.samples_ns)
    assert "recompiled" not in [f.code for f in found.findings]


def test_the_number_of_threads_is_stated_and_the_sessions_own_is_kept() -> None:
    torch.set_num_threads(2)
    x = torch.randn(64, 64)
    assert referee.bench(torch.mm, x, x, budget="30ms").provenance.value("chip.threads") == 2
    assert referee.bench(torch.mm, x, x, budget="30ms", threads=1).provenance.value("chip.threads") == 1
    assert torch.get_num_threads() == 2


def test_autocast_is_stated_with_its_site() -> None:
    layer, x = torch.nn.Linear(16, 16), torch.randn(4, 16)

    def inside() -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer(x)

    plain = referee.bench(layer, x, budget="30ms")
    cast = referee.bench(inside, budget="30ms")
    assert plain.provenance.value("switches.autocast_site") == "nowhere"
    assert cast.provenance.value("switches.autocast_site") == "inside the step"
    refused = referee.compare(("plain", lambda: layer(x)), ("autocast", inside), budget="30ms")
    assert refused.answer == "cannot-tell"
    assert "switches.autocast" in [d.path for d in refused.pairs[0].differences]


def test_the_first_call_of_each_shape_is_apart_from_its_number() -> None:
    """Kernels are loaded and algorithms chosen at the first use of each shape: 27 times slower, each time anew."""
    device = FakeSync()
    met: set[int] = set()

    def build(rows: int) -> Built:
        def step() -> FakeOutput:
            slow, _ = 1 if rows in met else 27, met.add(rows)
            return device.run(host_ns=slow * rows * 20_000)

        return Built(step=step)

    found = sweep(build, parameter="rows", values=[1, 2, 4, 8], device=device, plan=PLAN)
    for point in found.points:
        assert point.median_ns == pytest.approx(point.value * 20_000, rel=0.001)
        assert point.measurement.warmup.first_call_ns >= 27 * point.value * 20_000
        assert point.measurement.warmup.steady_after == 1


def test_waiting_after_each_call_and_once_a_block_are_two_rows() -> None:
    """A short kernel behind a slow host: what one caller waits, what a queue of calls takes, what the device works."""
    device = FakeAsync(settle_ns=8_000)
    found = measure(lambda: device.run(host_ns=6_000, device_ns=5_000), device=device, plan=PLAN)
    clocks = found.clocks
    assert clocks.settled_amortised_ns == pytest.approx(6_000, rel=0.02)
    assert clocks.device_ns == pytest.approx(5_000, rel=0.02)
    assert clocks.settled_per_call_ns is not None
    assert clocks.settled_per_call_ns > 2 * clocks.settled_amortised_ns
    assert found.provenance.value("method.clock") == "settled_amortised"


def test_warm_and_flushed_are_two_numbers() -> None:
    """Inputs that fit the cache are read 1.6 times faster than from memory: neither number may pass for the other."""
    device = FakeSync()
    cached = False

    def step() -> FakeOutput:
        nonlocal cached
        length_ns, cached = 100_000 if cached else 160_000, True
        return device.run(host_ns=length_ns)

    def flush() -> None:
        nonlocal cached
        cached = False
        device.run(host_ns=2_000_000)

    warm = measure(step, device=device, plan=PLAN)
    cold = measure(step, device=device, plan=PLAN, prepare=flush, method={"cache_state": "flushed"})
    assert (warm.median_ns, cold.median_ns) == (100_000, 160_000)
    assert warm.provenance.value("method.cache_state") == "warm"
    assert cold.provenance.value("method.cache_state") == "flushed"
