"""How long does this take, here in my notebook? The Python interface: the commands' answers for callables at hand.

The simplest form is one line::

    >>> import referee
    >>> referee.bench(torch.add, a, b)  # doctest: +SKIP
    add: 1.17 µs (1.16 µs to 1.18 µs at 95 %); floor 1.16 µs; 2,609 blocks; float32, 2 × (1,) float32; …

Each function returns the record that the command of the same name writes: :func:`save` and :func:`load` are the same
file format. What the measured callable raises passes through.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from referee.bench.plan import ProgressCallback, no_progress
from referee.callables import (
    CacheState,
    Maker,
    Step,
    meet_call,
    meet_candidates,
    name_of,
    plan_for,
    refuse_unknown,
    require_callable,
    with_cache_state,
    with_memory,
    with_threads,
)
from referee.errors import OptionError
from referee.records.compare import Comparison
from referee.records.measurement import Measurement, Sweep
from referee.records.shapes import ShapeSet
from referee.records.sweep_grid import SweepGrid
from referee.records.verify import Verification

if TYPE_CHECKING:
    from referee.bench.sweep import Built
    from referee.records.schema import Record

__all__ = ["bench", "compare", "load", "save", "shapes", "sweep", "sweep_grid", "verify"]


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
    **unknown: Any,
) -> Measurement:
    """How long does ``f(*args, **kwargs)`` take?

    ``device`` is where the outputs live unless named. ``budget`` is a duration ("2s") or a number of seconds.
    ``threads`` holds for this measurement alone. ``cache``: "flushed" overwrites the last cache before each call,
    "rotated" gives successive calls copies of the arguments. ``memory`` counts peak and requests in a pass of its own.
    ``prove`` shows that the work ran, on copies of the arguments, where those can be copied. ``graph`` times the
    replay of a CUDA graph of the call. Raises :class:`~referee.errors.OptionError` for any other name: what ``f`` takes
    by name stands in ``kwargs``.
    """
    from referee.bench.measure import measure

    refuse_unknown(unknown)
    require_callable(f, what="The first argument")
    named = name or name_of(f)
    with with_threads(threads):
        met = meet_call(f, args, kwargs or {}, device=device)
        seen = met.seen
        timed, prepare, method, findings = with_cache_state(met.step, cache, met.twin, device=met.device, seen=seen)
        if graph:
            from referee.device.graph_replay import capture_graph

            timed, named = capture_graph(timed, device=met.device.name), f"{named} (CUDA graph)"
        found = measure(
            timed,
            device=met.device,
            plan=plan_for(budget),
            name=named,
            first=met.first,
            observation=seen,
            method={**seen.method, **method},
            switches=seen.switches,
            findings=(*seen.findings, *findings),
            fresh=met.twin if prove and cache == "warm" and not graph else None,
            prepare=prepare,
            progress=progress,
        )
        return with_memory(found, met.step, device=met.device) if memory else found


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
    Switches that a candidate sets for the whole process are put back before the next one, and at the end.
    """
    from referee.bench.compare import COMPARED
    from referee.bench.compare import compare as compare_candidates
    from referee.device.state import kept_state

    if not isinstance(args, (tuple, list)):
        raise OptionError(
            f"args is a {type(args).__name__}, and not a tuple of arguments.", hint="Write args=(x,) for one."
        )
    ignoring = (ignoring,) if isinstance(ignoring, str) else ignoring
    named = [_named(candidate) for candidate in candidates]
    if len({name for name, _ in named}) < len(named):
        named = [(f"{name} #{number + 1}", f) for number, (name, f) in enumerate(named)]
    if len(named) < 2:
        raise OptionError("A comparison needs two candidates.")
    with with_threads(threads), kept_state():
        sides, opened = meet_candidates(named, args, device=device)
        return compare_candidates(
            sides,
            device=opened,
            plan=plan_for(budget),
            ignoring=(*COMPARED, *(ignoring or ())),
            progress=progress,
        )


def _named(candidate: object) -> tuple[str, Callable[..., object]]:
    """A candidate with its name, which it brings or has by itself."""
    if isinstance(candidate, (list, dict)):
        raise OptionError(
            f"A candidate is a callable, or a pair of a name and a callable, not a {type(candidate).__name__}.",
            hint='Write them one after the other: referee.compare(("a", f), ("b", g)).',
        )
    if isinstance(candidate, tuple):
        if len(candidate) != 2 or not isinstance(candidate[0], str):
            raise OptionError('A named candidate is a pair of a name and a callable: ("mine", f).')
        name, f = candidate
    else:
        name, f = name_of(candidate), candidate  # type: ignore[arg-type]  # what it is shows next
    require_callable(f, what=f"The candidate {name}")
    return name, f


def sweep(
    make: Callable[[Any], Step],
    *,
    parameter: str,
    values: Iterable[Any],
    device: str | None = None,
    budget: str | float = "500ms",
    threads: int | None = None,
    items_per_call: Callable[[Any], float] | None = None,
    price_per_hour: float | None = None,
    served: float | None = None,
    name: str | None = None,
    progress: ProgressCallback = no_progress,
) -> Sweep:
    """How does the time of ``make(value)`` grow over ``values`` of ``parameter``? ``make`` returns the step to time.

    ``items_per_call`` says how many items a call processes at a value (default: the value itself).
    """
    from referee.bench.sweep import sweep as sweep_built
    from referee.device.state import kept_state

    chosen = list(values)
    if not chosen:
        raise OptionError("A sweep needs at least one value.", hint="Give for example values=[1, 2, 4, 8].")
    if items_per_call is not None and not callable(items_per_call):
        raise OptionError(
            f"items_per_call is a {type(items_per_call).__name__}: it says how many items a call has at a value.",
            hint="Write for example items_per_call=lambda batch: 128 * batch.",
        )
    with with_threads(threads), kept_state():
        maker = Maker(make, chosen, device=device)

        def build(value: Any) -> Built:
            return maker.build(value, items=None if items_per_call is None else items_per_call(value))

        return sweep_built(
            build,
            parameter=parameter,
            values=chosen,
            device=maker.device,
            plan=plan_for(budget),
            name=name or name_of(make),
            price_per_hour=price_per_hour,
            served=served,
            progress=progress,
        )


def sweep_grid(
    make: Callable[..., Step],
    *,
    parameter: str,
    values: Iterable[Any],
    others: Mapping[str, Iterable[Any]],
    device: str | None = None,
    budget: str | float = "500ms",
    threads: int | None = None,
    price_per_hour: float | None = None,
    progress: ProgressCallback = no_progress,
) -> SweepGrid:
    """How does the time grow over ``values`` of ``parameter`` at each combination of the ``others``?

    ``make`` is called with all of them by name and returns the step to time. Raises
    :class:`~referee.errors.OptionError` where there are more combinations than a sitting holds.
    """
    from referee.bench.grid import sweep_grid as sweep_each

    if not isinstance(others, Mapping):
        raise OptionError(
            f"others is a {type(others).__name__}, and not a mapping of names to values.",
            hint='Write for example others={"length": [128, 256]}.',
        )
    chosen = list(values)

    def one(fixed: Mapping[str, Any], name: str) -> Sweep:
        return sweep(
            lambda value: make(**fixed, **{parameter: value}),
            parameter=parameter,
            values=chosen,
            device=device,
            budget=budget,
            threads=threads,
            price_per_hour=price_per_hour,
            name=name,
            progress=progress,
        )

    return sweep_each(
        one, name=name_of(make), parameter=parameter, others={name: list(others[name]) for name in others}
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
    from referee.device.state import kept_state

    if not isinstance(labels, (Mapping, Sequence)):
        raise OptionError(
            f"The shapes are a {type(labels).__name__}, and not a list of shapes or a mapping of labels to them.",
            hint="Write for example [(8, 128), (8, 512)].",
        )
    by_label = dict(labels) if isinstance(labels, Mapping) else {str(shape): shape for shape in labels}
    if not by_label:
        raise OptionError("A set of shapes needs at least one.")
    if len(by_label) < len(labels):
        raise OptionError("A shape is listed twice.", hint="How often it comes is for shares={label: weight} to say.")
    weights = shares or {}
    unknown = [label for label in weights if label not in by_label]
    if unknown:
        raise OptionError(f"There is a share for {unknown[0]!r}, which is no shape of the set.")
    with with_threads(threads), kept_state():
        maker = Maker(make, list(by_label.values()), device=device)
        return measure_shapes(
            {
                label: Shape(built=maker.build(shape), share=weights.get(label, 1.0))
                for label, shape in by_label.items()
            },
            device=maker.device,
            plan=plan_for(budget),
            name=name_of(make),
            seed=seed,
            progress=progress,
        )


def verify(
    saved: Measurement | Sweep | str | os.PathLike[str],
    f: Callable[..., object],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    at: Any = None,
    device: str | None = None,
    tolerance_frac: float | None = None,
    progress: ProgressCallback = no_progress,
) -> Verification:
    """Does the saved measurement hold here, for ``f(*args, **kwargs)``?

    ``saved`` is a record or the file of one; of a sweep, ``at`` names the value whose point is meant. Measured again by
    the saved plan, with as many threads and in the same cache state.
    """
    from referee.bench.verify import TOLERANCE_FRAC, cache_of, check_tolerance, plan_of, saved_measurement, threads_of
    from referee.bench.verify import verify as hold_against

    require_callable(f, what="What is to be measured again")
    tolerance_frac = TOLERANCE_FRAC if tolerance_frac is None else tolerance_frac
    check_tolerance(tolerance_frac)
    is_path = isinstance(saved, (str, os.PathLike))
    record = saved_measurement(
        load(saved) if isinstance(saved, (str, os.PathLike)) else saved,
        path=str(saved) if is_path else "What was saved",
        at=None if at is None else str(at),
        option="at=",
    )
    again = bench(
        f,
        *args,
        kwargs=kwargs,
        device=device,
        budget=plan_of(record).budget_ns / 1e9,
        threads=threads_of(record),
        cache=cache_of(record),
        prove=False,
        name=record.name,
        progress=progress,
    )
    return hold_against(record, again, tolerance_frac=tolerance_frac)


def load(path: str | os.PathLike[str]) -> Record:
    """The record in the file at ``path``.

    Raises :class:`~referee.errors.SchemaError` for a file that cannot be read or is no record of Referee's.
    """
    from referee.records import schema  # knows the records of every command: a tenth of a second that others need not

    return schema.load(path)


def save(record: Record, path: str | os.PathLike[str]) -> None:
    """Write the record to ``path``, replacing it atomically."""
    from referee.records import schema

    schema.save(record, path)
