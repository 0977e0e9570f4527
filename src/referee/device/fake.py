"""What would an exact device do? Three fake devices on a virtual clock, one for each way of settling.

Nothing here waits: time is an integer that the fakes advance, so a test knows the true enqueue, settled and device
times to the nanosecond. A step is made of calls to :meth:`FakeDevice.run`::

    device = FakeAsync()
    step = lambda: device.run(host_ns=5_000, device_ns=20_000)
    out = step()             # the host pays 5 µs; 20 µs of work are queued
    device.settle(out)       # the host waits until that work is done
    device.now_ns()          # 25_000

Noise that belongs to single operations is a list of :class:`Noise`; noise that comes from the machine (preemption,
slow episodes) belongs to the :class:`VirtualClock`. Both are in :mod:`referee.device.noise`. The truth for checks is
kept in ``ops_recorded``, ``ops_executed`` and ``work_ns``, and ``ops_dropped`` and ``ops_merged`` on the lazy one.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable, Mapping
from itertools import count

from referee.device.fake_queue import Queue, QueueTimer
from referee.device.noise import Delay, Noise, VirtualClock
from referee.device.protocol import DeviceTimer, Settling
from referee.device.settle import find_leaves
from referee.errors import OptionError
from referee.records.finding import Scalar

LAUNCH_QUEUE = 1_024
"""Entries of the launch queue: what CUDA's holds before a launch blocks the host."""


class FakeOutput:
    """What an operation on a fake device returns: a handle on the work behind it.

    ``done_ns`` is the time at which the work ends, known as soon as it is queued; ``None`` while it is only recorded.
    """

    __slots__ = ("__weakref__", "device", "device_ns", "done_ns", "key", "order", "reads")

    def __init__(
        self, device: FakeDevice, *, device_ns: int, reads: tuple[FakeOutput, ...], key: Hashable, order: int
    ) -> None:
        self.device = device
        self.device_ns = device_ns
        self.reads = reads
        self.key = key
        self.order = order
        self.done_ns: int | None = None

    def read(self) -> None:
        """Read the value back, as ``.item()`` does: materialises, waits for this work alone."""
        self.device._await_outputs([self])


class FakeDevice:
    """What the three fakes share: the clock, the noise, the counters and the books of what truly ran.

    ``settle_ns`` is the host cost of one settle, ``read_ns`` of one reading of the clock. ``clock`` may be shared by
    several devices of one machine.
    """

    settling = Settling.SYNCHRONOUS

    def __init__(
        self,
        *,
        clock: VirtualClock | None = None,
        noise: Iterable[Noise] = (),
        settle_ns: int = 0,
        read_ns: int = 0,
        block_target_ns: int = 150_000,
        name: str = "fake-sync",
    ) -> None:
        self.clock = clock if clock is not None else VirtualClock()
        self.noise = tuple(noise)
        self.settle_ns = settle_ns
        self.read_ns = read_ns
        self.ops_recorded = 0
        self.ops_executed = 0
        self.work_ns = 0
        self._name = name
        self._block_target_ns = block_target_ns
        self._counters: dict[str, int] = {}
        self._order = count()

    @property
    def name(self) -> str:
        """The name given at the start: ``fake-sync``, ``fake-async`` or ``fake-lazy`` unless chosen otherwise."""
        return self._name

    @property
    def block_target_ns(self) -> int:
        """The length of a block as given at the start."""
        return self._block_target_ns

    def now_ns(self) -> int:
        """The virtual time after the cost of reading it."""
        self.clock.advance(self.read_ns)
        return self.clock.now_ns

    def involuntary_switches(self) -> int:
        """How often the virtual scheduler has taken the processor away so far."""
        return self.clock.switches

    def counters(self) -> Mapping[str, int]:
        """What :meth:`bump` and the fake compiler have counted."""
        return dict(self._counters)

    def bump(self, name: str, by: int = 1) -> None:
        """Move the counter ``name``, as a recompilation inside a step would."""
        self._counters[name] = self._counters.get(name, 0) + by

    def describe(self) -> Mapping[str, Scalar] | None:
        """``None``: a fake synchronous device stands in for the CPU. The other two describe themselves."""
        return None

    def timer(self) -> DeviceTimer | None:
        """``None``: only the asynchronous fake has a queue of its own to put marks into."""
        return None

    def run(
        self, *, host_ns: int, device_ns: int = 0, reads: Iterable[FakeOutput] = (), key: Hashable = None
    ) -> FakeOutput:
        """Issue one operation that costs the host ``host_ns`` and the device ``device_ns``; returns its output.

        ``reads`` are outputs of earlier operations that this one consumes. ``key`` says what is computed: operations
        with equal keys are the same computation to a lazy backend's compiler.
        """
        if host_ns < 0 or device_ns < 0:
            raise OptionError("A fake operation cannot take negative time.")
        extra = self._delay()
        output = FakeOutput(
            self,
            device_ns=max(0, device_ns + extra.device_ns),
            reads=tuple(reads),
            key=(key, device_ns),
            order=next(self._order),
        )
        self.ops_recorded += 1
        self.clock.advance(max(0, host_ns + extra.host_ns))
        self._issue(output)
        return output

    def settle(self, outputs: object = None) -> None:
        """Wait for the work behind ``outputs`` on every fake device it lives on, and for this device."""
        self.clock.advance(self.settle_ns)
        per_device: dict[int, tuple[FakeDevice, list[FakeOutput]]] = {}
        for handle in find_leaves(outputs, FakeOutput):
            per_device.setdefault(id(handle.device), (handle.device, []))[1].append(handle)
        for device, handles in per_device.values():
            device._await_outputs(handles)
        self._await_device(everything=outputs is None)

    def _delay(self) -> Delay:
        total = Delay()
        for source in self.noise:
            total += source.delay(index=self.ops_recorded, now_ns=self.clock.now_ns)
        return total

    def _execute(self, output: FakeOutput, *, done_ns: int) -> None:
        output.done_ns = done_ns
        output.reads = ()  # a finished result needs its inputs no longer: they may die
        self.ops_executed += 1
        self.work_ns += output.device_ns

    def _issue(self, output: FakeOutput) -> None:
        """Do, queue or record the work."""
        raise NotImplementedError

    def _await_outputs(self, handles: list[FakeOutput]) -> None:
        """Return when the work behind ``handles``, all of this device, is done."""
        raise NotImplementedError

    def _await_device(self, *, everything: bool) -> None:
        """Return when the device has nothing queued; ``everything``: nor anything recorded."""
        raise NotImplementedError


class FakeSync(FakeDevice):
    """A device whose calls return when the work is done: the host pays for both parts.

    ``chain_work_ns`` is what the chain takes by which the core's clock is read (``None``: it has none to read).
    """

    chain_work_ns: int | None = None

    def chain_ns(self) -> int | None:
        """How long the chain takes now, with whatever slows the host down."""
        if self.chain_work_ns is None:
            return None
        start_ns = self.clock.now_ns
        self.clock.advance(self.chain_work_ns)
        return self.clock.now_ns - start_ns

    def _issue(self, output: FakeOutput) -> None:
        self.clock.advance(output.device_ns)
        self._execute(output, done_ns=self.clock.now_ns)

    def _await_outputs(self, handles: list[FakeOutput]) -> None:
        pass

    def _await_device(self, *, everything: bool) -> None:
        pass


class FakeAsync(FakeDevice):
    """A device with one in-order queue, as a CUDA stream: calls queue work and return; a full queue blocks them."""

    settling = Settling.ASYNCHRONOUS

    def __init__(
        self,
        *,
        clock: VirtualClock | None = None,
        noise: Iterable[Noise] = (),
        settle_ns: int = 0,
        read_ns: int = 0,
        block_target_ns: int = 1_000_000,
        name: str = "fake-async",
        queue_entries: int = LAUNCH_QUEUE,
    ) -> None:
        super().__init__(
            clock=clock, noise=noise, settle_ns=settle_ns, read_ns=read_ns, block_target_ns=block_target_ns, name=name
        )
        self._queue = Queue(self.clock, capacity=queue_entries)

    def timer(self) -> DeviceTimer | None:
        """A pair of marks in the fake queue, free of cost."""
        return QueueTimer(self._queue)

    def hold(self, length_ns: int) -> None:
        """Occupy the queue for ``length_ns`` with work that computes nothing; returns at once."""
        self._queue.push(length_ns)

    def describe(self) -> Mapping[str, Scalar] | None:
        """The name alone."""
        return {"name": f"virtual asynchronous device ({self._name})", "index": 0}

    def _issue(self, output: FakeOutput) -> None:
        ready_ns = max((r.done_ns for r in output.reads if r.done_ns is not None), default=0)
        self._execute(output, done_ns=self._queue.push(output.device_ns, not_before_ns=ready_ns))

    def _await_outputs(self, handles: list[FakeOutput]) -> None:
        for handle in handles:
            if handle.done_ns is not None:
                self.clock.wait_until(handle.done_ns)

    def _await_device(self, *, everything: bool) -> None:
        self._queue.drain()


class FakeLazy(FakeDevice):
    """A device that only records: work runs when it is materialised, and a recorded result nobody holds never runs.

    :meth:`materialise` starts the work and returns at once (it is *not* a wait); :meth:`wait` waits for what was
    started and materialises nothing (it is *not* a barrier for what is only recorded). :meth:`settle` is both, on
    exactly the outputs given. A graph seen for the first time costs ``compile_ns`` on the host and moves the counter
    ``UncachedCompile``. With ``merge_identical`` equal computations materialised together run once.
    """

    settling = Settling.LAZY

    def __init__(
        self,
        *,
        clock: VirtualClock | None = None,
        noise: Iterable[Noise] = (),
        settle_ns: int = 0,
        read_ns: int = 0,
        block_target_ns: int = 2_000_000,
        name: str = "fake-lazy",
        compile_ns: int = 0,
        merge_identical: bool = False,
    ) -> None:
        super().__init__(
            clock=clock, noise=noise, settle_ns=settle_ns, read_ns=read_ns, block_target_ns=block_target_ns, name=name
        )
        self.compile_ns = compile_ns
        self.ops_merged = 0
        self.merge_identical = merge_identical
        self._queue = Queue(self.clock, capacity=LAUNCH_QUEUE)
        self._recorded: weakref.WeakValueDictionary[int, FakeOutput] = weakref.WeakValueDictionary()
        self._compiled: set[Hashable] = set()

    def describe(self) -> Mapping[str, Scalar] | None:
        """The name alone."""
        return {"name": f"virtual lazy device ({self._name})", "index": 0}

    def counters(self) -> Mapping[str, int]:
        """As :meth:`FakeDevice.counters`; ``UncachedCompile`` is there from the start."""
        return {"UncachedCompile": 0, **self._counters}

    @property
    def ops_pending(self) -> int:
        """How many recorded operations somebody still holds or needs."""
        return len(self._recorded)

    @property
    def ops_dropped(self) -> int:
        """How many recorded operations died unmaterialised: they never ran and never will."""
        return self.ops_recorded - self.ops_executed - self.ops_merged - self.ops_pending

    def materialise(self, outputs: object = None) -> None:
        """Start the work behind ``outputs`` (``None``: behind everything recorded that somebody holds); do not wait."""
        wanted = list(self._recorded.values()) if outputs is None else find_leaves(outputs, FakeOutput)
        graph = self._graph([handle for handle in wanted if handle.device is self])
        if graph:
            self._compile(graph)
        started: dict[Hashable, int] = {}
        for node in graph:
            if self.merge_identical and node.key in started:
                node.done_ns, node.reads = started[node.key], ()
                self.ops_merged += 1
            else:
                self._execute(node, done_ns=self._queue.push(node.device_ns))
                started[node.key] = self._queue.free_ns
            self._recorded.pop(node.order, None)

    def wait(self) -> None:
        """Wait for the work that was started; what is only recorded stays recorded."""
        self._queue.drain()

    def _issue(self, output: FakeOutput) -> None:
        self._recorded[output.order] = output

    def _graph(self, wanted: Iterable[FakeOutput]) -> list[FakeOutput]:
        """The recorded operations that ``wanted`` need, themselves included, in the order of recording."""
        nodes: dict[int, FakeOutput] = {}
        stack = list(wanted)
        while stack:
            node = stack.pop()
            if node.device is self and node.done_ns is None and node.order not in nodes:
                nodes[node.order] = node
                stack.extend(node.reads)
        return [nodes[order] for order in sorted(nodes)]

    def _compile(self, graph: list[FakeOutput]) -> None:
        """Pay for a graph that was not seen before. A graph is known by its computations and who reads whom."""
        place = {node.order: index for index, node in enumerate(graph)}
        signature = tuple((node.key, tuple(place.get(read.order, -1) for read in node.reads)) for node in graph)
        if signature not in self._compiled:
            self._compiled.add(signature)
            self.bump("UncachedCompile")
            self.clock.advance(self.compile_ns)

    def _await_outputs(self, handles: list[FakeOutput]) -> None:
        self.materialise(handles)
        self.clock.wait_until(max((h.done_ns for h in handles if h.done_ns is not None), default=0))

    def _await_device(self, *, everything: bool) -> None:
        if everything:
            self.materialise()
        self._queue.drain()
