"""What are callables at hand, as a live measurement wants them? Their name, device, twins, cache state and threads."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from referee.bench.plan import MOST_BUDGET_NS, Plan
from referee.errors import OptionError, RefereeError
from referee.records.finding import Finding, Scalar
from referee.records.measurement import Measurement
from referee.units import format_bytes, parse_duration_ns

if TYPE_CHECKING:
    from referee.bench.sides import Candidate
    from referee.bench.sweep import Built
    from referee.bench.warmup import FirstCall
    from referee.device.observe import Observation
    from referee.device.protocol import Device
    from referee.device.state import State

_COPIED_BYTES = 32 * 1024 * 1024
"""Arguments larger than this are not copied to prove that the work ran: some fifty copies live at once."""

Step = Callable[[], object]
CacheState = Literal["warm", "flushed", "rotated"]


def name_of(f: Callable[..., object]) -> str:
    """What a callable is called in a result: its own name, that of what it wraps, or its type's."""
    inner: Any = f
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__name__", None) or type(inner).__name__
    return "step" if name == "<lambda>" else str(name)


def require_callable(f: object, *, what: str) -> None:
    """Refuse a result in the place of the callable that computes it."""
    if not callable(f):
        raise OptionError(
            f"{what} is a {type(f).__name__}, which cannot be called.",
            hint="Hand over the function and its arguments, uncalled: referee.bench(torch.add, a, b).",
        )


def refuse_unknown(options: Mapping[str, object]) -> None:
    """Refuse names that no option has: they were meant for the callable."""
    for name in options:
        raise OptionError(
            f"bench has no option {name!r}.", hint=f"What the callable takes by name goes into kwargs={{{name!r}: …}}."
        )


def plan_for(budget: str | float) -> Plan:
    """The plan within ``budget``: a duration, or a number of seconds."""
    try:
        budget_ns = parse_duration_ns(str(budget))
    except ValueError as error:
        raise OptionError(f"budget: {error}.") from error
    if budget_ns > MOST_BUDGET_NS:
        raise OptionError("A budget must be less than a day.", hint="Give for example 500ms.")
    plan = Plan()
    return replace(plan, budget_ns=budget_ns, min_ns=min(plan.min_ns, budget_ns))


def meet_step(device: str | None, step: Step, args: Sequence[Any]) -> tuple[Device, FirstCall]:
    """Where does ``step`` compute, and what did its first call there cost?

    The device named, else the one the arguments live on, else the one the output lives on, else the one the step was
    seen to compute on. There is one first call: it is timed as such, whatever it was also needed for.
    """
    from referee.bench.warmup import first_call
    from referee.device.registry import open_device

    opened = open_device(_lives_on((args, _held(step))) or "cpu" if device is None else device)
    first = first_call(step, device=opened)  # settles on the outputs, wherever they live
    refuse_unstarted(first.output)
    if device is None and opened.name == "cpu":
        where = _lives_on(first.output) or _computes_on(step, opened)
        opened = opened if where == "cpu" else open_device(where)
    return opened, replace(first, output=None)


@dataclass(frozen=True, kw_only=True)
class MetCall:
    """A call that was made: the step, where it computes, what its first call cost, what a second one did."""

    step: Step
    device: Device
    first: FirstCall
    seen: Observation
    twin: Callable[[], Step] | None
    """Makes the same call on copies of its arguments, where those can be copied."""


def meet_call(
    f: Callable[..., object], args: Sequence[Any], kwargs: Mapping[str, Any], *, device: str | None
) -> MetCall:
    """Make the call of ``f`` a step, call it once, timed, and once watched."""
    from referee.device.state import read_state

    if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
        raise OptionError(
            f"kwargs is a {type(kwargs).__name__}, and not a mapping of names to values.",
            hint='Write for example kwargs={"alpha": 2}.',
        )
    step = functools.partial(f, *args, **kwargs)
    session = read_state()
    opened, first = meet_step(device, step, args)
    seen = observe_since(session, step, opened)
    return MetCall(step=step, device=opened, first=first, seen=seen, twin=twin_of(f, args, kwargs))


def refuse_unstarted(output: object) -> None:
    """Refuse what is not finished when the call returns: a coroutine, a generator, a future."""
    from referee.device.pending import pending

    found = pending(output)
    if found is not None:
        words, mend = found
        raise OptionError(f"The callable returns {words}.", hint=mend)


def _held(step: Step) -> tuple[object, ...]:
    """The tensors that ``step`` holds: in its closure, its arguments, its models."""
    from referee.device.discover import discover

    held = discover(step)
    return (*held.tensors, *(p for module in held.modules for p in module.parameters()))


def _computes_on(step: Step, device: Device) -> str:
    """The first device other than the CPU that a call of ``step``, which returns no tensor, works on."""
    from referee.device.observe import observe

    away = (used for used in observe(step, device).devices if used.partition(":")[0] not in ("cpu", "meta"))
    return next(away, "cpu")


def _lives_on(value: object) -> str | None:
    """The device of the first tensor in ``value`` that is not on the CPU; ``cpu`` if all are, ``None`` if none is."""
    from referee.device.settle import find_leaves

    torch: Any = sys.modules.get("torch")
    if torch is None:
        return None
    tensors = find_leaves(value, torch.Tensor)
    return next((str(t.device) for t in tensors if t.device.type not in ("cpu", "meta")), "cpu" if tensors else None)


def observe_since(before: State, step: Step, device: Device) -> Observation:
    """What a call of ``step`` does, with the switches that it has set for the whole process since ``before``."""
    from referee.device.observe import observe
    from referee.device.state import read_state, switch_findings

    seen = observe(step, device)
    return replace(seen, findings=(*seen.findings, *switch_findings(before.moved(read_state()))))


def build_point(step: Step, *, device: Device, items: float | None, first: FirstCall | None = None) -> Built:
    """A step of a sweep or of a set of shapes, met; ``first`` is its first call where that has been made."""
    from referee.bench.sweep import Built
    from referee.bench.warmup import first_call
    from referee.device.state import read_state

    before = read_state()
    first = first or replace(first_call(step, device=device), output=None)
    seen = observe_since(before, step, device)
    return Built(
        step=step,
        first=first,
        observation=seen,
        items_per_call=items,
        findings=seen.findings,
        method=seen.method,
        switches=seen.switches,
    )


def make_step(make: Callable[[Any], Step], value: object) -> Step:
    """``make(value)``, which must be a step."""
    step: object = make(value)
    if not callable(step):
        raise OptionError(
            f"{name_of(make)}({value!r}) returned a {type(step).__name__}, which cannot be called.",
            hint="Let it return the function to be timed: lambda: model(x).",
        )
    return step


class Maker:
    """Builds the step at each of several values; the first value at which one can be built tells the device.

    That step is built and called once, and kept for its turn, with the switches that it set. What another value raised
    on the way is raised again at its own turn. Raises what the first value raised where none can be built.
    """

    def __init__(self, make: Callable[[Any], Step], values: Sequence[Any], *, device: str | None) -> None:
        from referee.device.registry import open_device
        from referee.device.state import kept_state, read_state

        if device is not None:
            open_device(device)  # what is wrong with the device is wrong at every value
        self._make = make
        self._failed: list[tuple[object, Exception]] = []
        for value in values:
            with kept_state():
                try:
                    step = make_step(make, value)
                    self.device, first = meet_step(device, step, ())
                except Exception as error:  # noqa: BLE001 - the user's code: anything can come out
                    self._failed.append((value, error))
                    continue
                self._met: tuple[object, Step, FirstCall, State] | None = (value, step, first, read_state())
                return
        raise self._failed[0][1]

    def build(self, value: object, *, items: float | None = None) -> Built:
        """The step at ``value``, met."""
        for failed, error in self._failed:
            if failed is value:
                raise error
        if self._met is None or self._met[0] is not value:
            return build_point(make_step(self._make, value), device=self.device, items=items)
        _, step, first, state = self._met
        self._met = None
        state.put()
        return build_point(step, device=self.device, items=items, first=first)


def meet_candidates(
    named: Sequence[tuple[str, Callable[..., object]]], args: Sequence[Any], *, device: str | None
) -> tuple[list[Candidate], Device]:
    """The sides of a comparison, met, each on its own device unless one is named, and the device of the first.

    The switches that a side sets are kept with it, and not left to the next one.
    """
    from referee.bench.sides import Candidate
    from referee.device.state import kept_state, read_state

    opened: dict[str, Device] = {}
    sides: list[Candidate] = []
    for name, f in named:
        step = functools.partial(f, *args)
        with kept_state() as session:
            own, first = meet_step(device, step, args)
            own = opened.setdefault(own.name, own)
            seen = observe_since(session, step, own)
            side = Candidate(
                name=name,
                step=step,
                first=first,
                observation=seen,
                device=own,
                method=seen.method,
                switches=seen.switches,
                findings=seen.findings,
                state=read_state(),
                fresh=twin_of(f, args, {}),
            )
        sides.append(side)
    return sides, next(iter(opened.values()))


def twin_of(f: Callable[..., object], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[], Step] | None:
    """A maker of the same call on copies of its arguments; ``None`` where they are none, too large, or not copyable."""
    if (not args and not kwargs) or _tensor_bytes((args, kwargs)) > _COPIED_BYTES:
        return None
    try:
        copy.deepcopy((args, kwargs))
    except Exception:  # noqa: BLE001 - results of autograd, locks, handles, and whatever a class of the user's raises
        return None

    def make() -> Step:
        own_args, own_kwargs = copy.deepcopy((args, kwargs))
        return functools.partial(f, *own_args, **own_kwargs)

    return make


def _tensor_bytes(value: object) -> int:
    """How much memory the tensors in ``value`` take."""
    from referee.device.settle import find_leaves

    torch: Any = sys.modules.get("torch")
    return 0 if torch is None else sum(t.numel() * t.element_size() for t in find_leaves(value, torch.Tensor))


def with_cache_state(
    step: Step, cache: CacheState, twin: Callable[[], Step] | None, *, device: Device, seen: Observation
) -> tuple[Step, Callable[[], None] | None, dict[str, Scalar], tuple[Finding, ...]]:
    """The step, what prepares each call, what provenance says of it, and what is wrong with it."""
    if cache == "warm":
        return step, None, {}, ()
    from referee.device.cache import Flusher, cache_bytes, rotate, working_set_bytes

    if cache == "flushed":
        flusher = Flusher(device)
        checked = flusher.check()
        state: dict[str, Scalar] = {"cache_state": f"flushed ({format_bytes(flusher.cache_bytes)} cache)"}
        if checked.works:
            return step, flusher.flush_and_wait, state, ()
        finding = Finding(
            code="cache-state",
            severity="warning",
            message="The flush makes no difference to a re-read that fits the cache: the state may be warm.",
            evidence={"warm_ns": checked.warm_ns, "flushed_ns": checked.flushed_ns, "read_bytes": checked.read_bytes},
            hint="Measure with inputs larger than the cache.",
        )
        return step, flusher.flush_and_wait, state, (finding,)
    if cache != "rotated":
        raise OptionError(f"{cache!r} is no cache state.", hint="Known are warm, flushed, rotated.")
    if twin is None:
        raise OptionError("Arguments that cannot be copied cannot be rotated.", hint='Use cache="flushed".')
    rotation = rotate(twin, working_set=working_set_bytes(seen.shapes), cache=cache_bytes(device))
    return rotation.step, None, {"cache_state": f"rotated over {rotation.copies} copies"}, ()


def with_memory(found: Measurement, step: Step, *, device: Device) -> Measurement:
    """The measurement with peak and requests of memory, counted in a pass of its own.

    Where that is not to be had the number stands, with a finding that says why.
    """
    from referee.bench.raised import describe_error
    from referee.device.memory import measure_memory

    try:
        use = measure_memory(step, device)
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - the user's code, once more
        why = error.message if isinstance(error, RefereeError) else describe_error(error)
        missing = Finding(
            code="part-missing",
            severity="warning",
            message=f"Memory could not be counted: {why.rstrip('.')}.",
            evidence={"part": "memory", "error": type(error).__name__},
        )
        return replace(found, findings=(*found.findings, missing))
    return replace(found, peak_bytes=use.peak_bytes, allocations=use.allocations)


@contextmanager
def with_threads(threads: int | None) -> Iterator[None]:
    """Compute with so many threads, and with as many as before afterwards."""
    if threads is None:
        yield
        return
    if not isinstance(threads, int) or threads < 1:
        raise OptionError(f"threads={threads!r}: the number of threads is a whole number above 0.")
    from referee.device.cpu import set_threads
    from referee.device.host import load_torch

    before = load_torch().get_num_threads()
    set_threads(threads)
    try:
        yield
    finally:
        set_threads(before)
