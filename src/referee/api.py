"""How long does this take, here in my notebook? The Python interface: the commands' answers for callables at hand.

The simplest form is one line::

    >>> import referee
    >>> referee.bench(torch.add, a, b)  # doctest: +SKIP
    add: 1.17 µs (1.16 µs to 1.18 µs at 95 %); floor 1.16 µs; 2,609 blocks; float32, 2 × (1,) float32; …

Each function returns the record that the command of the same name writes: :func:`save` and :func:`load` are the same
file format. What the measured callable raises passes through.
"""

from __future__ import annotations

import copy
import functools
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from referee.bench.plan import Plan, ProgressCallback, no_progress
from referee.errors import OptionError
from referee.records.compare import Comparison
from referee.records.finding import Finding, Scalar
from referee.records.measurement import Measurement, Sweep
from referee.records.schema import load, save
from referee.records.shapes import ShapeSet
from referee.records.verify import Verification
from referee.units import format_bytes, parse_duration_ns

if TYPE_CHECKING:
    from referee.bench.sweep import Built
    from referee.device.observe import Observation
    from referee.device.protocol import Device

__all__ = ["bench", "compare", "load", "save", "shapes", "sweep", "verify"]

_COPIED_BYTES = 32 * 1024 * 1024
"""Arguments larger than this are not copied to prove that the work ran: some fifty copies live at once."""

Step = Callable[[], object]
CacheState = Literal["warm", "flushed", "rotated"]


def bench(
    f: Callable[..., object],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    device: str | None = None,
    budget: str | float = "500ms",
    threads: int | None = None,
    cache: CacheState = "warm",
    memory: bool = False,
    prove: bool = True,
    graph: bool = False,
    name: str | None = None,
    progress: ProgressCallback = no_progress,
) -> Measurement:
    """How long does ``f(*args, **kwargs)`` take?

    ``device`` is where the outputs live unless named. ``budget`` is a duration ("2s") or a number of seconds.
    ``threads`` holds for this measurement alone. ``cache``: "flushed" overwrites the last cache before each call,
    "rotated" gives successive calls copies of the arguments. ``memory`` counts peak and requests in a pass of its own.
    ``prove`` shows that the work ran, on copies of the arguments, where those can be copied. ``graph`` times the
    replay of a CUDA graph of the call.
    """
    from referee.bench.measure import measure
    from referee.bench.warmup import first_call

    step = functools.partial(f, *args, **(kwargs or {}))
    named = name or name_of(f)
    with _threads(threads):
        opened = _open(device, step, args)
        first = replace(first_call(step, device=opened), output=None)
        seen = _observe(step, opened)
        twin = _twin(f, args, kwargs or {})
        timed, prepare, method, findings = with_cache_state(step, cache, twin, device=opened, seen=seen)
        if graph:
            from referee.device.graph_replay import capture_graph

            timed, named = capture_graph(timed, device=opened.name), f"{named} (CUDA graph)"
        proved = prove and cache == "warm" and not graph
        found = measure(
            timed,
            device=opened,
            plan=_plan(budget),
            name=named,
            first=first,
            observation=seen,
            method={**seen.method, **method},
            switches=seen.switches,
            findings=(*seen.findings, *findings),
            fresh=twin if proved else None,
            prepare=prepare,
            progress=progress,
        )
        return with_memory(found, step, device=opened) if memory else found


def compare(
    *candidates: Callable[..., object] | tuple[str, Callable[..., object]],
    args: Sequence[Any] = (),
    device: str | None = None,
    budget: str | float = "1s",
    threads: int | None = None,
    ignoring: Collection[str] | None = None,
    progress: ProgressCallback = no_progress,
) -> Comparison:
    """Is the second callable faster than the first? Each is called with ``args``; more are each held against the first.

    A candidate is a callable or a pair of a name and a callable. ``ignoring`` names provenance keys that may differ
    because they are what is compared ("dtype", "switches.grad_mode"); whether code is compiled may always differ.
    """
    from referee.bench.compare import COMPARED, Candidate
    from referee.bench.compare import compare as compare_candidates
    from referee.bench.warmup import first_call

    named = [c if isinstance(c, tuple) else (name_of(c), c) for c in candidates]
    if len({name for name, _ in named}) < len(named):
        named = [(f"{name} #{number + 1}", f) for number, (name, f) in enumerate(named)]
    with _threads(threads):
        steps = [(name, functools.partial(f, *args)) for name, f in named]
        if len(steps) < 2:
            raise OptionError("A comparison needs two candidates.")
        opened = _open(device, steps[0][1], args)
        sides = []
        for name, step in steps:
            first = replace(first_call(step, device=opened), output=None)
            seen = _observe(step, opened)
            sides.append(
                Candidate(
                    name=name,
                    step=step,
                    first=first,
                    observation=seen,
                    method=seen.method,
                    switches=seen.switches,
                    findings=seen.findings,
                )
            )
        return compare_candidates(
            sides,
            device=opened,
            plan=_plan(budget),
            ignoring=(*COMPARED, *(ignoring or ())),
            progress=progress,
        )


def sweep(
    make: Callable[[Any], Step],
    *,
    parameter: str,
    values: Sequence[Any],
    device: str | None = None,
    budget: str | float = "500ms",
    threads: int | None = None,
    items_per_call: Callable[[Any], float] | None = None,
    price_per_hour: float | None = None,
    served: float | None = None,
    progress: ProgressCallback = no_progress,
) -> Sweep:
    """How does the time of ``make(value)`` grow over ``values`` of ``parameter``? ``make`` returns the step to time.

    ``items_per_call`` says how many items a call processes at a value (default: the value itself).
    """
    from referee.bench.sweep import sweep as sweep_built

    with _threads(threads):
        probe = make(values[0]) if values else None
        opened = _open(device, probe or (lambda: None), ())

        def build(value: Any) -> Built:
            items = None if items_per_call is None else items_per_call(value)
            return _built(make(value), device=opened, items=items)

        return sweep_built(
            build,
            parameter=parameter,
            values=values,
            device=opened,
            plan=_plan(budget),
            name=name_of(make),
            price_per_hour=price_per_hour,
            served=served,
            progress=progress,
        )


def shapes(
    make: Callable[[Any], Step],
    labels: Mapping[str, Any] | Sequence[Any],
    *,
    shares: Mapping[str, float] | None = None,
    device: str | None = None,
    budget: str | float = "2s",
    threads: int | None = None,
    seed: int = 0,
    progress: ProgressCallback = no_progress,
) -> ShapeSet:
    """What are median, p95 and p99 when requests come in these shapes? ``make(shape)`` returns the step of one.

    ``labels`` maps a label to a shape, or lists shapes (labelled by their text); ``shares`` weighs them by label.
    """
    from referee.bench.shapes import Shape, measure_shapes

    by_label = dict(labels) if isinstance(labels, Mapping) else {str(shape): shape for shape in labels}
    if not by_label:
        raise OptionError("A set of shapes needs at least one.")
    weights = shares or {}
    unknown = [label for label in weights if label not in by_label]
    if unknown:
        raise OptionError(f"There is a share for {unknown[0]!r}, which is no shape of the set.")
    with _threads(threads):
        steps = {label: make(shape) for label, shape in by_label.items()}
        opened = _open(device, next(iter(steps.values())), ())
        return measure_shapes(
            {
                label: Shape(built=_built(step, device=opened, items=None), share=weights.get(label, 1.0))
                for label, step in steps.items()
            },
            device=opened,
            plan=_plan(budget),
            name=name_of(make),
            seed=seed,
            progress=progress,
        )


def verify(
    saved: Measurement | str | os.PathLike[str],
    f: Callable[..., object],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    device: str | None = None,
    tolerance_frac: float | None = None,
    progress: ProgressCallback = no_progress,
) -> Verification:
    """Does the saved measurement hold here, for ``f(*args, **kwargs)``? Measured again by the saved plan."""
    from referee.bench.verify import TOLERANCE_FRAC, plan_of
    from referee.bench.verify import verify as hold_against

    record = saved if isinstance(saved, Measurement) else load(saved)
    if not isinstance(record, Measurement):
        raise OptionError(f"Only a measurement can be verified, not a {record.schema}.")
    again = bench(
        f,
        *args,
        kwargs=kwargs,
        device=device,
        budget=plan_of(record).budget_ns / 1e9,
        prove=False,
        name=record.name,
        progress=progress,
    )
    return hold_against(record, again, tolerance_frac=TOLERANCE_FRAC if tolerance_frac is None else tolerance_frac)


def name_of(f: Callable[..., object]) -> str:
    """What a callable is called in a result: its own name, that of what it wraps, or its type's."""
    inner: Any = f
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__name__", None) or type(inner).__name__
    return "step" if name == "<lambda>" else str(name)


def _plan(budget: str | float) -> Plan:
    try:
        budget_ns = parse_duration_ns(str(budget))
    except ValueError as error:
        raise OptionError(f"budget: {error}.") from error
    plan = Plan()
    return replace(plan, budget_ns=budget_ns, min_ns=min(plan.min_ns, budget_ns))


def _open(device: str | None, step: Step, args: Sequence[Any]) -> Device:
    """The device named, else the one the arguments live on, else the one the step's output lives on."""
    from referee.device.registry import open_device

    if device is not None:
        return open_device(device)
    return open_device(_lives_on(args) or _lives_on(step()) or "cpu")


def _lives_on(value: object) -> str | None:
    """The device of the first tensor in ``value`` that is not on the CPU; ``cpu`` if all are, ``None`` if none is."""
    from referee.device.settle import find_leaves

    torch: Any = sys.modules.get("torch")
    if torch is None:
        return None
    tensors = find_leaves(value, torch.Tensor)
    return next((str(t.device) for t in tensors if not t.is_cpu), "cpu" if tensors else None)


def _observe(step: Step, device: Device) -> Observation:
    from referee.device.observe import observe

    return observe(step, device)


def _built(step: Step, *, device: Device, items: float | None) -> Built:
    from referee.bench.sweep import Built
    from referee.bench.warmup import first_call

    first = first_call(step, device=device)
    seen = _observe(step, device)
    return Built(
        step=step,
        first=replace(first, output=None),
        observation=seen,
        items_per_call=items,
        findings=seen.findings,
        method=seen.method,
        switches=seen.switches,
    )


def _twin(f: Callable[..., object], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[], Step] | None:
    """A maker of the same call on copies of its arguments; ``None`` where they are none, too large, or not copyable."""
    if (not args and not kwargs) or _tensor_bytes((args, kwargs)) > _COPIED_BYTES:
        return None
    try:
        copy.deepcopy((args, kwargs))
    except (RuntimeError, TypeError, NotImplementedError):  # results of autograd, locks, handles
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
    """The measurement with peak and requests of memory, counted in a pass of its own."""
    from referee.device.memory import measure_memory

    use = measure_memory(step, device)
    return replace(found, peak_bytes=use.peak_bytes, allocations=use.allocations)


@contextmanager
def _threads(threads: int | None) -> Iterator[None]:
    """Compute with so many threads, and with as many as before afterwards."""
    if threads is None:
        yield
        return
    if threads < 1:
        raise OptionError("At least one thread computes.")
    from referee.device.cpu import set_threads
    from referee.device.host import load_torch

    before = load_torch().get_num_threads()
    set_threads(threads)
    try:
        yield
    finally:
        set_threads(before)
