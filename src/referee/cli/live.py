"""What is to be measured, and on what? The options every live command shares, and the target they describe."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from referee.errors import OptionError, PackageMissing
from referee.units import NS_PER_MS, NS_PER_S, parse_duration_ns

if TYPE_CHECKING:
    from referee.bench.plan import Plan
    from referee.bench.sweep import Built
    from referee.bench.warmup import FirstCall
    from referee.callables import CacheState
    from referee.cli.progress import Progress
    from referee.device.observe import Observation
    from referee.device.protocol import Device
    from referee.device.state import State
    from referee.records.measurement import Measurement, Sweep
    from referee.target import Target


_QUICK_BUILD_NS = 5 * NS_PER_MS
"""Some fifty steps are built for a proof that the work ran: a quarter of a second."""


_DTYPE_HELP = "float32, bfloat16, float16, … handed to a target that declares dtype"


def add_target_arguments(parser: argparse.ArgumentParser, *, dtype_help: str = _DTYPE_HELP) -> None:
    """The target and how it is built; ``dtype_help`` says what a command makes of ``--dtype``."""
    parser.add_argument("target", nargs="?", metavar="TARGET", help="FILE.py:NAME or package.module:NAME")
    parser.add_argument("--stmt", help="a statement to time instead of a target, as in timeit")
    parser.add_argument("--setup", default="", help="what runs once before --stmt")
    add_target_options(parser, dtype_help=dtype_help)


def add_target_options(parser: argparse.ArgumentParser, *, dtype_help: str = _DTYPE_HELP) -> None:
    """What is handed to a target, and what it runs on."""
    parser.add_argument("--device", default="cpu", help="cpu, cuda[:N], xpu, mps, lazy (default: cpu)")
    parser.add_argument("--dtype", help=dtype_help)
    parser.add_argument("--batch-size", type=_positive, metavar="N", help="handed to a target that declares batch_size")
    parser.add_argument(
        "--param", action="append", default=[], metavar="NAME=VALUE", help="any other parameter the target declares"
    )
    parser.add_argument("--threads", type=_positive, metavar="N", help="intra-op threads (default: the session's)")


def add_budget_argument(parser: argparse.ArgumentParser, *, default: str, what: str) -> None:
    """``--budget``: the wall-clock budget of one measurement."""
    parser.add_argument(
        "--budget", default=default, metavar="TIME", help=f"wall-clock budget {what} (default: {default})"
    )


def add_layout_argument(parser: argparse.ArgumentParser) -> None:
    """``--layout``: at which addresses the process lies; the command has been started there before this is read."""
    parser.add_argument(
        "--layout",
        choices=("fixed", "random"),
        help="addresses of the process: the same in every run, or drawn anew by the system, which moves a call of a"
        " microsecond by some percent (default: fixed, where the system allows it)",
    )


def check_layout(args: argparse.Namespace) -> None:
    """Raise one sentence where the addresses that were asked for were not to be had."""
    from referee.device.layout import address_layout

    found = address_layout()
    if args.layout is not None and args.layout != found:
        raise OptionError(
            f"--layout {args.layout} is not to be had: this process lies at {found or 'unknown'} addresses, and only "
            "the command `referee`, on Linux, can start itself again at others.",
            hint="Leave --layout out.",
        )


def parse_budget_ns(args: argparse.Namespace) -> int:
    """The budget in nanoseconds."""
    return parse_duration(args.budget, option="--budget")


def parse_duration(text: str, *, option: str) -> int:
    """What an option says of how long to measure, in nanoseconds."""
    try:
        budget_ns = parse_duration_ns(text)
    except ValueError as error:
        raise OptionError(f"{option}: {error}.") from error
    if budget_ns == 0:
        raise OptionError(f"{option} 0 leaves no time to measure.", hint=f"Give for example {option} 1s.")
    if budget_ns > 24 * 3600 * NS_PER_S:
        raise OptionError(f"{option} {text} is more than a day.")
    return budget_ns


def parse_params(args: argparse.Namespace) -> dict[str, str]:
    """``--param NAME=VALUE`` as a mapping."""
    params: dict[str, str] = {}
    for text in args.param:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise OptionError(f"--param {text}: this is not NAME=VALUE.", hint="Write for example --param layers=4.")
        if name in params:
            raise OptionError(f"--param {name} is given twice.", hint="To compare or sweep values: --vary, --values.")
        params[name] = value
    for name, option in (("batch_size", "--batch-size"), ("dtype", "--dtype")):
        if name in params and getattr(args, name, None) is not None:
            raise OptionError(f"{option} and --param {name} say the same thing twice.", hint="Leave one of them out.")
    return params


def open_live(args: argparse.Namespace) -> tuple[Device, Target]:
    """Open the device, set the threads, load the target."""
    device = open_device(args)
    return device, load_one(args)


def open_device(args: argparse.Namespace) -> Device:
    """Open the device and set the threads, once it is certain that one thing is to be loaded."""
    if (args.target is None) == (args.stmt is None):
        raise OptionError("Name one target, FILE.py:NAME, or give one statement with --stmt.")
    if args.stmt is not None and (args.batch_size or args.param or args.dtype):
        raise OptionError("--stmt takes no --batch-size, --dtype or --param.", hint="Put them into --setup.")
    return _open_device(args)


def load_one(args: argparse.Namespace) -> Target:
    """Load the target, or the statement."""
    from referee.target import load_statement

    if args.stmt is None:
        return load_spec(args, args.target)
    target = load_statement(args.stmt, args.setup)
    _check_threads(args, target)
    return target


def open_on(args: argparse.Namespace, specs: Sequence[str]) -> tuple[Device, list[Target]]:
    """Open the device, set the threads, and load several targets, all with the same options."""
    parse_params(args)
    device = _open_device(args)
    return device, [load_spec(args, spec) for spec in specs]


def load_spec(args: argparse.Namespace, spec: str) -> Target:
    """Load one of several targets, with the options that all of them share."""
    from referee.target import load_target

    target = load_target(
        spec, batch_size=args.batch_size, device=args.device, dtype=args.dtype, params=parse_params(args)
    )
    _check_threads(args, target)
    return target


def _check_threads(args: argparse.Namespace, target: Target) -> None:
    """Raise where the target's own code sets another number of threads than was asked for."""
    from referee.device.cpu import threads_in_force

    found = threads_in_force()
    if args.threads and found != args.threads:
        raise OptionError(
            f"--threads {args.threads} was asked for, and {target.name} sets {found} itself when it is loaded.",
            hint="Leave --threads out, or take torch.set_num_threads out of its code.",
        )


def _open_device(args: argparse.Namespace) -> Device:
    require_torch()
    from referee.device.cpu import set_threads
    from referee.device.registry import open_device

    device = open_device(args.device)
    if args.threads:
        set_threads(args.threads)
    return device


@dataclass(frozen=True, kw_only=True)
class Acquaintance:
    """What is known of a step before it is measured: its first call, timed as it was, and what a second one did."""

    first: FirstCall
    seen: Observation
    state: State
    """The switches in force as the target left them."""


def meet(target: Target, *, device: Device) -> Acquaintance:
    """Call the step once, timed, and once watched; refuse what raises or returns nothing that can be awaited.

    The first call comes before the watching, because it pays first-time costs (compilation, allocation) that are to
    be reported as they are.
    """
    from dataclasses import replace

    from referee.bench.warmup import first_call
    from referee.device.observe import observe
    from referee.device.state import read_state, switch_findings
    from referee.target import require_output, step_errors

    before = target.before or read_state()
    with step_errors(target.name):
        first = first_call(target.step, device=device)
        require_output(target, first.output)
        # Where NAME itself is the step, loading had to call it and has paid the first-time costs.
        ns = first.ns if target.first_call_ns is None else target.first_call_ns
        first = replace(first, ns=ns, output=None)
        seen, state = observe(target.step, device), read_state()
        seen = replace(seen, findings=(*seen.findings, *switch_findings(before.moved(state))))
        return Acquaintance(first=first, seen=seen, state=state)


def measure_target(
    target: Target,
    *,
    device: Device,
    plan: Plan,
    progress: Progress,
    known: Acquaintance,
    cache: CacheState = "warm",
    prove: bool | None = None,
) -> Measurement:
    """Measure the target's step; what it raises becomes one sentence with the place in the user's code.

    ``prove``: show that the work ran, on steps built anew; ``None``: where building one is quick, and on lazy devices.
    """
    from referee.bench.measure import measure
    from referee.callables import with_cache_state
    from referee.target import step_errors

    with step_errors(target.name), progress.stage(f"measuring {target.name}"):
        fresh = fresh_steps(target)
        step, prepare, method, findings = with_cache_state(target.step, cache, fresh, device=device, seen=known.seen)
        if prove is None:
            prove = is_quick(fresh, device=device)
        return measure(
            step,
            device=device,
            plan=plan,
            name=target.name,
            first=known.first,
            observation=known.seen,
            target=target,
            method={**known.seen.method, **method},
            switches=known.seen.switches,
            findings=(*known.seen.findings, *findings),
            fresh=fresh if prove and cache == "warm" else None,
            prepare=prepare,
            progress=progress.bench,
        )


def fresh_steps(target: Target) -> Callable[[], Callable[[], object]] | None:
    """A maker of the target's step on inputs not used before; ``None`` where it cannot be built again."""
    return (lambda: target.rebuild().step) if target.factory and not target.statement else None


def is_quick(fresh: Callable[[], object] | None, *, device: Device) -> bool:
    """Whether some dozens of fresh steps can be built without the user noticing; a lazy device is worth the wait."""
    from referee.device.protocol import Settling

    if fresh is None:
        return False
    if device.settling is Settling.LAZY:
        return True
    begun_ns = device.now_ns()
    fresh()
    return device.now_ns() - begun_ns <= _QUICK_BUILD_NS


def sweep_target(
    target: Target,
    *,
    parameter: str,
    values: Sequence[object],
    device: Device,
    plan: Plan,
    progress: Progress,
    price_per_hour: float | None = None,
    served: float | None = None,
    fixed: Mapping[str, object] | None = None,
    name: str | None = None,
) -> Sweep:
    """Measure the target at each value of one of its parameters, with others held ``fixed``."""
    from referee.bench.sweep import sweep
    from referee.target import explain_error, step_errors

    require_declared(target, parameter)
    with step_errors(target.name), progress.stage(f"sweeping {parameter}"):
        return sweep(
            lambda value: build_at(target, {**(fixed or {}), parameter: value}, device=device),
            parameter=parameter,
            values=values,
            device=device,
            plan=plan,
            name=name or target.name,
            price_per_hour=price_per_hour,
            served=served,
            explain=lambda error: explain_error(error, target.name),
            progress=progress.bench,
        )


def build_at(target: Target, values: Mapping[str, object], *, device: Device) -> Built:
    """The target built at these values of its parameters, with so many threads in force, and what is known of it."""
    from referee.bench.sweep import Built

    for name in values:
        if sets_threads(target, name):
            use_threads(values[name])
    built = target.rebuild(**{name: value for name, value in values.items() if not sets_threads(target, name)})
    known = meet(built, device=device)
    return Built(
        step=built.step,
        first=known.first,
        observation=known.seen,
        target=built,
        # Where no batch size says how many items there are, a call is one; the parameter's unit need not be an item.
        items_per_call=built.batch_size or 1,
        findings=known.seen.findings,
        method=known.seen.method,
        switches=known.seen.switches,
    )


def sets_threads(target: Target, parameter: str) -> bool:
    """Whether the parameter is the number of intra-op threads, which any target has without declaring it."""
    return parameter == "threads" and parameter not in target.declared


def use_threads(threads: object) -> None:
    """Let torch compute with so many intra-op threads from now on."""
    from referee.device.cpu import set_threads

    if not str(threads).isdecimal() or int(str(threads)) < 1:
        raise OptionError(f"threads={threads} is not a number of threads.", hint="Write for example 1,2,4.")
    set_threads(int(str(threads)))


def with_threads(target: Target, threads: object) -> Target:
    """The target built with so many intra-op threads in force."""
    use_threads(threads)
    return target.rebuild()


def require_declared(target: Target, parameter: str) -> None:
    """Refuse to sweep what the target does not declare: the same thing would be measured under several labels."""
    if parameter not in target.declared and not sets_threads(target, parameter):
        declared = ", ".join(target.declared) or "none"
        raise OptionError(
            f"{target.name} declares no parameter {parameter!r}, so it cannot be swept.",
            hint=f"It declares {declared}; let it take {parameter} to sweep it. Any target's threads can be swept.",
        )


def require_torch() -> None:
    """Raise one sentence where torch is not installed."""
    from importlib.util import find_spec

    try:
        os.getcwd()
    except FileNotFoundError:  # a library below torch ends the process there, with words of its own
        raise OptionError("The working directory has been deleted.", hint="Change to one that exists.") from None
    if find_spec("torch") is None:
        raise PackageMissing.named("torch", need="Measuring live", extra="torch")


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return value
