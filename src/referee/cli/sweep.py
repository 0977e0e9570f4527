"""``referee sweep``: how does the time grow with a parameter? The null experiment."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from referee.cli.live import (
    add_budget_argument,
    add_layout_argument,
    add_target_arguments,
    build_at,
    check_layout,
    load_one,
    open_device,
    parse_budget_ns,
    require_declared,
    sweep_target,
)
from referee.cli.output import add_output_arguments, check_output_arguments, deliver
from referee.cli.plot import add_plot_argument, check_plot, write_plot
from referee.cli.progress import Progress
from referee.errors import OptionError, RefereeError, StepError, TargetError

if TYPE_CHECKING:
    from referee.device.protocol import Device
    from referee.records.measurement import Sweep
    from referee.target import Target

DEFAULT_VALUES = (1, 2, 4, 8, 16, 32)
Value = int | float | str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_target_arguments(parser)
    parser.add_argument(
        "--parameter",
        default="batch_size",
        metavar="NAME",
        help="what is swept: a parameter the target declares, or threads (default: batch_size)",
    )
    parser.add_argument(
        "--values",
        default=",".join(map(str, DEFAULT_VALUES)),
        metavar="A,B,…",
        help="its values (default: %(default)s)",
    )
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="NAME=A,B,…",
        help="another parameter and its values: a sweep for each (for each combination, where it is given again)",
    )
    parser.add_argument(
        "--price", type=float, metavar="PER_HOUR", help="price of the machine per hour: items per dollar"
    )
    parser.add_argument("--served", type=float, metavar="VALUE", help="the value that will be served")
    parser.add_argument(
        "--serving", action="store_true", help="call the values in random order, as requests come: p50, p95 and p99"
    )
    add_plot_argument(parser, what="time over the parameter")
    add_budget_argument(parser, default="1s", what="at each value")
    add_layout_argument(parser)
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Load, measure at each value, fit, show."""
    check_output_arguments(args)
    check_layout(args)
    check_plot(args.plot)
    values = parse_values(args.values)
    budget_ns = parse_budget_ns(args)
    if args.stmt is not None:
        raise OptionError("A statement has no parameters to sweep.", hint="Name a target, FILE.py:NAME.")
    if args.serving and (args.price is not None or args.served is not None or args.plot):
        raise OptionError(
            "--serving gives percentiles over a mixture of values: it takes no --price, --served or --plot.",
            hint="Sweep once with --serving and once without.",
        )
    if args.served is not None and args.price is None:
        raise OptionError("--served says at which value the price counts.", hint="Give --price PER_HOUR too.")
    if args.price is not None and not 0 < args.price < inf:
        raise OptionError(f"--price {args.price:g}: a price per hour is above zero.")
    others = parse_others(args)
    if args.serving:
        return serve(args, values=values, budget_ns=budget_ns)
    device, target = open_at(args, values)
    from referee.bench.plan import Plan

    progress = Progress(enabled=not args.no_progress)

    def one(fixed: Mapping[str, Value], name: str) -> Sweep:
        return sweep_target(
            target,
            parameter=args.parameter,
            values=values,
            device=device,
            plan=Plan(budget_ns=budget_ns),
            progress=progress,
            price_per_hour=args.price,
            served=args.served,
            fixed=fixed,
            name=name,
        )

    if others:
        return _each(args, one, others=others, target=target)
    result = one({}, target.name)
    deliver(result, args)
    if args.plot:
        from referee.report.sweep import sweep_plot

        write_plot(sweep_plot(result), args.plot)
    return 0


def _each(
    args: argparse.Namespace,
    one: Callable[[Mapping[str, Value], str], Sweep],
    *,
    others: Mapping[str, Sequence[Value]],
    target: Target,
) -> int:
    """A sweep for each combination of the other parameters."""
    from referee.bench.grid import sweep_grid
    from referee.report.sweep_grid import grid_plot

    for name in others:
        require_declared(target, name)
    grid = sweep_grid(one, name=target.name, parameter=args.parameter, others=others)
    deliver(grid, args)
    if args.plot:
        write_plot(grid_plot(grid), args.plot)
    return 0


def parse_others(args: argparse.Namespace) -> dict[str, tuple[Value, ...]]:
    """``--also NAME=A,B`` as values by name."""
    others: dict[str, tuple[Value, ...]] = {}
    for text in args.also:
        name, sign, values = text.partition("=")
        if not sign or not name.strip():
            raise OptionError(f"--also {text}: a name and its values are wanted.", hint="Write --also length=128,256.")
        if name.strip() in others:
            raise OptionError(f"--also {name.strip()} is given twice.", hint="Write its values in one list.")
        others[name.strip()] = parse_values(values, option=f"--also {name.strip()}=")
    if args.parameter in others:
        raise OptionError(
            f"--also {args.parameter}: that is what is swept already.", hint="Put the values in --values."
        )
    if others and args.serving:
        raise OptionError("--serving draws from one list of values: it takes no --also.")
    return others


def serve(args: argparse.Namespace, *, values: Sequence[Value], budget_ns: int) -> int:
    """A mixture of shapes, as a service meets them."""
    device, target = open_at(args, values)
    from referee.bench.plan import Plan
    from referee.bench.shapes import Shape, measure_shapes
    from referee.target import step_errors

    require_declared(target, args.parameter)
    progress = Progress(enabled=not args.no_progress)
    with step_errors(target.name), progress.stage(f"serving {target.name}"):
        shapes = {
            f"{args.parameter}={value}": Shape(built=build_at(target, {args.parameter: value}, device=device))
            for value in values
        }
        plan = Plan(budget_ns=budget_ns * len(values))
        result = measure_shapes(shapes, device=device, plan=plan, name=target.name, progress=progress.bench)
    deliver(result, args)
    return 0


def open_at(args: argparse.Namespace, values: Sequence[Value]) -> tuple[Device, Target]:
    """Open the device and load the target at the first of the values that it can be built at.

    Its own default need not be one of them, and may well be larger than this machine can hold. Switches that building
    sets are put back; what importing its file sets holds for each value. Raises what the first value raised where none
    can be built.
    """
    from referee.device.state import kept_state, restore

    device = open_device(args)
    name = args.parameter
    given = vars(args)
    first_error: RefereeError | None = None
    for value in values:
        try:
            with kept_state():
                target = load_one(argparse.Namespace(**{**given, **_given(name, value, args.param)}))
        except StepError as error:
            first_error = first_error or error
            continue
        except TargetError:
            # What the target does not declare is told in the words of a sweep.
            with kept_state():
                target = load_one(args)
            require_declared(target, name)
            raise
        if target.loaded is not None:
            restore(target.loaded)
        return device, target
    assert first_error is not None  # there is a value, and each raised
    raise first_error


def _given(name: str, value: Value, params: Sequence[str]) -> dict[str, object]:
    """The options that hand ``value`` to the target under ``name``; none for threads, which are set otherwise."""
    others = [text for text in params if text.partition("=")[0] != name]
    if name in ("batch_size", "dtype"):
        return {name: value, "param": others}
    return {"param": [*others, f"{name}={value}"]} if name != "threads" else {}


def parse_values(text: str, *, option: str = "--values ") -> tuple[Value, ...]:
    """``1,2,4`` as distinct numbers above zero; words (dtypes, modes) are taken as they are."""
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise OptionError(f"{option}{text}: one of the values is empty.", hint="Write for example 1,2,4,8.")
    values = tuple(_value(part) for part in parts)
    if len(set(values)) < len(values):
        raise OptionError(f"{option}{text}: the values must be distinct.")
    numbers = [value for value in values if not isinstance(value, str)]
    if numbers and len(numbers) < len(values):
        raise OptionError(f"{option}{text}: numbers and words cannot be mixed.")
    if any(not value > 0 for value in numbers):
        raise OptionError(f"{option}{text}: the values must be above 0.")
    return values


def _value(text: str) -> Value:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
