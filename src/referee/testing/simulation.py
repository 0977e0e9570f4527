"""Traces whose truth is known: a small event simulation of a host that launches work onto a device's streams.

A host thread issues operators one after another; each launches a kernel into a queue of finite length, from which
streams take their work in order. Data loading, synchronisation, blocking copies, collectives, graph replay, a slow
first step, jitter, a clock offset and lost rows can be added. The simulation knows what the device
waited for because it made it wait: nothing here looks at what Referee's analysis would say.

Jitter is drawn from a sequence of its own for each purpose in each step, so that a workload that differs in one respect
(:func:`intervene`) differs in nothing else.

>>> from referee.testing import Workload, simulate
>>> simulation = simulate(Workload(kernel_ns=2_000, op_ns=20_000), seed=1)
>>> simulation.truth.regime, simulation.truth.kernels
('launch-bound', 300)
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace

from referee.trace.builder import TraceBuilder
from referee.trace.columns import Trace

COMPUTE_FRAC = 0.85
"""A device that is busy with computation for this share of its window or more is the limit."""
CLEAR_FRAC = 0.40
"""A cause that takes this share of the window or more, and twice the next one's, is the limit; less is left open."""
_COPY_STREAM, _COLLECTIVE_STREAM = 14, 20


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What the host does in each step, and what machine it runs on. Times are nanoseconds."""

    steps: int = 3
    ops: int = 100
    """Operators in a step, each with one kernel."""
    op_ns: int = 10_000
    """Host time of an operator around its launch."""
    launch_ns: int = 4_000
    kernel_ns: int = 20_000
    matrix_every: int = 0
    """Every so many operators one is a matrix product of ``matrix_ns``, those between are pointwise; 0: no names."""
    matrix_ns: int = 40_000
    fused: bool = False
    """The pointwise operators between two matrix products are one."""
    latency_ns: int = 2_000
    """From submission, in the middle of the launch call, to the earliest start on an idle stream."""
    streams: int = 1
    queue_length: int = 1024
    """Launches that may wait for the device before the next launch call blocks."""
    loader_ns: int = 0
    """Host time in the data loader at the beginning of each step."""
    copy_ns: int = 0
    """Device time of a copy from pageable memory at the beginning of each step, for which the host waits."""
    sync_every: int = 0
    """After how many operators the host synchronises; 0 for never."""
    after_sync_ns: int = 0
    """What the host does after each synchronisation before it goes on."""
    synchronises: bool = True
    """Whether the host ever waits for the device. If not, the calls of ``sync_every`` are not made (what comes after
    them is still done), and copies do not keep it, though what is launched after a copy still runs after it."""
    collective_ns: int = 0
    """Device time of a collective at the end of each step, which the next step's kernels wait for."""
    overlapped: bool = False
    """Copies and collectives (called in mid-step) run beside the computation: the next step alone waits for them."""
    first_step_ns: int = 0
    """A one-off stretch of host time in the second launch of all (lazy loading), inside the window."""
    graph: bool = False
    """Each step is one graph launch."""
    jitter: float = 0.0
    """Spread of all times, as the sigma of a log-normal factor."""
    clock_offset_ns: int = 0
    """How much later the device's clock reads than the host's."""
    lost_frac: float = 0.0
    """Share of device rows that the profiler loses."""
    rank: int = 0
    world_size: int = 1
    call_ns: int = 1_000
    """Host time of a call that synchronises or copies, besides waiting."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What is so by construction, before rows were lost and clocks shifted, unless said otherwise."""

    regime: str | None
    """The limit where one is clear; ``None`` where it is not."""
    kernels: int
    launches: int
    device_rows: int
    lost_rows: int
    busy_ns: int
    window_ns: int
    copies_ns: int = 0
    collectives_ns: int = 0
    """Device time of copies and of collectives: here nothing ever runs beside them."""
    waited_ns: dict[str, int] = field(default_factory=dict)
    """Idle time of the device by what it waited for: ``op``, ``loader``, ``sync``, ``one-off``, ``latency``."""
    kernels_per_step: tuple[int, ...] = ()
    blocked_launches: int = 0
    """Launch calls that waited for room in the queue."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Simulation:
    """A trace and the truth about it; ``file`` is the trace as the profiler would have written it."""

    trace: Trace
    truth: Truth
    file: bytes


def simulate(workload: Workload, *, seed: int = 0) -> Simulation:
    """Run a workload. The same workload and seed give the same trace."""
    return _Simulator(workload, seed).run()


def truth_of(workload: Workload, *, seed: int = 0) -> Truth:
    """What is so in the trace that :func:`simulate` would give, without writing that down."""
    simulator = _Simulator(workload, seed)
    simulator.play()
    return simulator.truth()


def simulate_ranks(
    workload: Workload, *, ranks: int, slow_rank: int | None = None, slow_factor: float = 1.5, seed: int = 0
) -> tuple[Simulation, ...]:
    """The ranks of one job; ``slow_rank`` takes ``slow_factor`` times as long over its operators on the host."""
    return tuple(
        simulate(
            replace(
                workload,
                rank=rank,
                world_size=ranks,
                op_ns=round(workload.op_ns * (slow_factor if rank == slow_rank else 1)),
            ),
            seed=seed * 1000 + rank,
        )
        for rank in range(ranks)
    )


def intervene(workload: Workload, *, host: float = 1.0, device: float = 1.0, synchronises: bool = True) -> Workload:
    """The workload with all costs of the host and of the device multiplied, or without its waits for the device."""

    def scaled(factor: float, *names: str) -> dict[str, int]:
        return {name: round(getattr(workload, name) * factor) for name in names}

    return replace(
        workload,
        **scaled(host, "op_ns", "launch_ns", "loader_ns", "after_sync_ns", "first_step_ns", "call_ns"),  # type: ignore[arg-type]
        **scaled(device, "kernel_ns", "copy_ns", "collective_ns"),  # type: ignore[arg-type]
        synchronises=workload.synchronises and synchronises,
    )


class _Simulator:
    """The clockwork: the host's time, when each stream is free, and what the host did when."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self._w = workload
        self._seed = seed
        self._draws: dict[str, random.Random] = {}
        self._number = 0
        self._builder = TraceBuilder(source=f"simulated-{seed}", base_ns=1_700_000_000_000_000_000)
        self._now = 0
        self._free: dict[int, int] = {}
        self._queue: deque[int] = deque()
        self._did: list[tuple[int, int, str]] = []
        self._device_rows: list[tuple[int, int, int, str]] = []
        self._after_collective = self._pending = 0
        self._correlation = 0
        self._launches = self._kernels = self._blocked = self._lost = 0
        self._per_step: list[int] = []

    def run(self) -> Simulation:
        """The trace of it all, and the truth."""
        self.play()
        return Simulation(trace=self._builder.build(), truth=self.truth(), file=self._builder.to_json())

    def play(self) -> None:
        """All steps, and a closing synchronise."""
        w = self._w
        self._builder.device_properties("Simulated Device", sm_count=100)
        self._builder.metadata(distributedInfo={"rank": w.rank, "world_size": w.world_size})
        for number in range(w.steps):
            begin, before = self._now, self._kernels
            self._number, self._draws = number, {}
            self._step(number)
            self._builder.step(number, begin, self._now - begin)
            self._per_step.append(self._kernels - before)
        self._synchronise()

    def _step(self, number: int) -> None:
        w = self._w
        self._after_collective = max(self._after_collective, self._pending)
        if w.loader_ns:
            begin = self._host(w.loader_ns, "loader", "loader")
            self._builder.loader(begin, self._now - begin)
        if w.copy_ns:
            self._copy()
        if w.graph:
            self._launch_graph()
        else:
            for index in range(w.ops):
                if w.overlapped and index == w.ops // 2:
                    self._collective()
                if not w.fused or index % w.matrix_every < 2:
                    self._operator(index, cold=number == 0 and index == min(1, self._w.ops - 1))
        if not w.overlapped or w.graph:
            self._collective()

    def _draw(self, purpose: str) -> random.Random:
        """The random numbers for one purpose in the present step."""
        if purpose not in self._draws:
            self._draws[purpose] = random.Random(f"{self._seed}-{purpose}-{self._number}")
        return self._draws[purpose]

    def _spread(self, ns: int, purpose: str) -> int:
        if not self._w.jitter:
            return ns
        factor = self._draw(purpose).lognormvariate(0, self._w.jitter)
        # What takes no time draws too: the next draw must not depend on it.
        return round(ns * factor)

    def _host(self, ns: int, what: str, purpose: str) -> int:
        """The host is busy for a while; answers when that began."""
        begin = self._now
        self._now += self._spread(ns, purpose)
        self._did.append((begin, self._now, what))
        return begin

    def _operator(self, index: int, *, cold: bool) -> None:
        begin = self._host(self._w.op_ns // 2, "op", "before")
        name, ns = self._kernel(index)
        self._launch(name, ns, 7 + index % self._w.streams, cold=cold)
        self._host(self._w.op_ns - self._w.op_ns // 2, "op", "after")
        self._builder.op(f"aten::op_{index % 7}", begin, self._now - begin)
        if self._w.sync_every and (index + 1) % self._w.sync_every == 0:
            if self._w.synchronises:
                self._synchronise()
            self._host(self._w.after_sync_ns, "op", "after-sync")

    def _synchronise(self) -> None:
        begin = self._now
        self._now = max([self._now + self._w.call_ns, *self._free.values()])
        self._did.append((begin, self._now, "sync"))
        self._builder.sync(begin, self._now - begin, name="cudaStreamSynchronize")

    def _call(self, name: str, *, cold: bool = False) -> tuple[int, int]:
        """A launch call, blocking while the queue is full; answers its correlation id and the time of submission."""
        while self._queue and self._queue[0] <= self._now:
            self._queue.popleft()
        begin = self._now
        if len(self._queue) >= self._w.queue_length:
            self._blocked += 1
            self._now = self._queue[len(self._queue) - self._w.queue_length]
        if cold and self._w.first_step_ns:
            self._host(self._w.first_step_ns, "one-off", "first")
        half = self._w.launch_ns // 2
        self._host(half, "op", "launch")
        submitted = self._now
        self._host(self._w.launch_ns - half, "op", "launched")
        self._correlation += 1
        self._launches += 1
        self._builder.launch(name, begin, self._now - begin, correlation=self._correlation)
        return self._correlation, submitted

    def _row(self, ready: int, ns: int, stream: int, kind: str) -> tuple[int, int]:
        start = max(ready, self._free.get(stream, 0))
        end = start + max(self._spread(ns, kind), 1)
        self._free[stream] = end
        self._device_rows.append((start, end, ready - self._w.latency_ns, kind))
        return start, end

    def _record(self, kind: str, name: str, start: int, end: int, stream: int, correlation: int) -> None:
        if self._draw("lost").random() < self._w.lost_frac:
            self._lost += 1
            return
        start += self._w.clock_offset_ns
        duration = end + self._w.clock_offset_ns - start
        if kind == "copy":
            name = "Memcpy HtoD (Pageable -> Device)"
            self._builder.memcpy(start, duration, name=name, stream=stream, correlation=correlation)
        else:
            self._builder.kernel(name, start, duration, stream=stream, correlation=correlation)

    def _kernel(self, index: int) -> tuple[str, int]:
        """What the kernel of this operator is called and how long it takes."""
        w = self._w
        if not w.matrix_every:
            return f"kernel_{index % 7}", w.kernel_ns
        if index % w.matrix_every == 0:
            return "ampere_sgemm_128x64_tn", w.matrix_ns
        return "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>", w.kernel_ns

    def _launch(self, name: str, ns: int, stream: int, *, cold: bool) -> None:
        correlation, submitted = self._call("cudaLaunchKernel", cold=cold)
        ready = max(submitted + self._w.latency_ns, self._after_collective)
        start, end = self._row(ready, ns, stream, "kernel")
        self._queue.append(start)
        self._kernels += 1
        self._record("kernel", name, start, end, stream, correlation)

    def _launch_graph(self) -> None:
        correlation, submitted = self._call("cudaGraphLaunch")
        ready = max(submitted + self._w.latency_ns, self._after_collective)
        for index in range(self._w.ops):
            start, end = self._row(ready, self._w.kernel_ns, 7, "kernel")
            self._kernels += 1
            self._record("kernel", f"kernel_{index % 7}", start, end, 7, correlation)
            ready = end
        self._queue.append(start)
        self._host(self._w.op_ns, "op", "after")

    def _copy(self) -> None:
        """A copy from pageable memory, whose call returns when it is done unless it is overlapped."""
        begin, w = self._now, self._w
        self._correlation += 1
        self._launches += 1
        ready = max([self._now + w.latency_ns, *([] if w.overlapped else self._free.values())])
        start, end = self._row(ready, w.copy_ns, _COPY_STREAM, "copy")
        self._now = (end if w.synchronises and not w.overlapped else self._now) + w.call_ns
        self._pending = max(self._pending, end)
        if not w.synchronises and not w.overlapped:
            self._after_collective = max(self._after_collective, end)
        self._did.append((begin, self._now, "sync"))
        self._builder.launch("cudaMemcpyAsync", begin, self._now - begin, correlation=self._correlation)
        self._record("copy", "", start, end, _COPY_STREAM, self._correlation)

    def _collective(self) -> None:
        if not self._w.collective_ns:
            return
        correlation, submitted = self._call("cudaLaunchKernelExC")
        ready = max([submitted + self._w.latency_ns, *self._free.values()])
        start, end = self._row(ready, self._w.collective_ns, _COLLECTIVE_STREAM, "collective")
        self._queue.append(start)
        self._kernels += 1
        self._pending = max(self._pending, end)
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        self._record("collective", name, start, end, _COLLECTIVE_STREAM, correlation)

    def truth(self) -> Truth:
        """What was so, once all has been played."""
        spans = sorted((start, end) for start, end, _, _ in self._device_rows)
        low, high = spans[0][0], max(end for _, end in spans)
        busy, waited = 0, dict.fromkeys(("op", "loader", "sync", "one-off", "latency"), 0)
        reach = low
        for start, end in spans:
            if start > reach:
                self._explain(reach, start, waited)
                reach = start
            busy += max(end - reach, 0)
            reach = max(reach, end)
        return Truth(
            regime=self._regime(busy, high - low, waited),
            kernels=self._kernels,
            launches=self._launches,
            device_rows=len(spans),
            lost_rows=self._lost,
            busy_ns=busy,
            window_ns=high - low,
            copies_ns=self._sum_ns("copy"),
            collectives_ns=self._sum_ns("collective"),
            waited_ns=waited,
            kernels_per_step=tuple(self._per_step),
            blocked_launches=self._blocked,
        )

    def _explain(self, begin: int, end: int, waited: dict[str, int]) -> None:
        """Share an idle stretch out over what the host did meanwhile; the rest is latency."""
        left = end - begin
        for start, stop, what in self._did:
            shared = min(stop, end) - max(start, begin)
            if shared > 0:
                waited[what] += shared
                left -= shared
        waited["latency"] += left

    def _sum_ns(self, kind: str) -> int:
        return sum(end - start for start, end, _, own in self._device_rows if own == kind)

    def _regime(self, busy: int, window: int, waited: dict[str, int]) -> str | None:
        copies, collectives = self._sum_ns("copy"), self._sum_ns("collective")
        losses = {
            "launch-bound": waited["op"] + waited["latency"],
            "input-bound": waited["loader"],
            "sync-bound": waited["sync"],
            "cold": waited["one-off"],
            "transfer-bound": copies,
            "communication-bound": collectives,
        }
        if busy - copies - collectives >= COMPUTE_FRAC * window:
            return "compute-bound"
        first, second = sorted(losses, key=lambda name: -losses[name])[:2]
        clear = losses[first] >= CLEAR_FRAC * window and losses[first] >= 2 * losses[second]
        return first if clear else None
