"""``referee precision``: which precision for this step, a scaler or not, and what does it gain here?"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from referee.cli.live import (
    add_budget_argument,
    add_target_arguments,
    load_one,
    meet,
    open_device,
    parse_budget_ns,
    require_torch,
)
from referee.cli.output import add_output_arguments, check_output_arguments, deliver, deliver_files, note
from referee.cli.plot import add_plot_argument, check_plot, write_plot
from referee.cli.progress import Progress
from referee.errors import OptionError

if TYPE_CHECKING:
    from referee.device.observe import Observation
    from referee.device.protocol import Device
    from referee.records.finding import Finding
    from referee.records.precision import PrecisionReport
    from referee.target import Target

_LOW = {"bf16": "bfloat16", "bfloat16": "bfloat16", "fp16": "float16", "float16": "float16", "half": "float16"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_target_arguments(parser, dtype_help="consider bf16 or fp16 alone (default: both, bf16 audited)")
    add_budget_argument(
        parser, default="40s", what="of everything, torch's loading included; reading the step is not cut short"
    )
    parser.add_argument(
        "--batch-sizes",
        metavar="N,N,…",
        help="where to look from which batch size it pays (default: 1,8,64; 0: nowhere)",
    )
    add_plot_argument(parser, what="the gradients' magnitudes with the ranges of fp16 and bf16")
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Load, watch once, ask every question, show. Where the step raises, what was seen until then is written."""
    begun_ns = time.perf_counter_ns()
    check_output_arguments(args)
    check_plot(args.plot)
    budget_ns = parse_budget_ns(args)
    low = _low_precisions(args.dtype)
    sizes = _sizes(args.batch_sizes)
    args.dtype = None  # the target itself stays in its own dtype
    require_torch()
    from referee.precision.advise import Sizes, advise
    from referee.precision.budget import floor_words, later_call_ns
    from referee.precision.subject import make_subject
    from referee.target import step_errors

    device = open_device(args)
    heard: list[Finding] = []
    progress = Progress(enabled=not args.no_progress)
    with _keeping(args, device, heard):
        target, seen = _met(args, device, heard)
        spent_ns = time.perf_counter_ns() - begun_ns
        words = floor_words(budget_ns, spent_ns=spent_ns, call_ns=seen.call_ns)
        if words:
            kind = device.name.partition(":")[0]
            subject = make_subject(target.step, device_type=kind, model=target.model, optimizer=target.optimizer)
            with step_errors(target.name):
                call_ns = later_call_ns(subject, device, call_ns=seen.call_ns)
            words = floor_words(budget_ns, spent_ns=spent_ns, call_ns=call_ns)
        if words:
            note(words)
        with step_errors(target.name), progress.stage(f"precision of {target.name}"):
            report = advise(
                target.step,
                device=device,
                name=target.name,
                model=target.model,
                optimizer=target.optimizer,
                low=low,
                budget_ns=budget_ns,
                spent_ns=spent_ns,
                seen=seen,
                own_sites=seen.autocast != "off",
                target=target,
                method=seen.method,
                findings=seen.findings,
                sizes=Sizes(build=_builder(target), own=target.batch_size, sizes=sizes)
                if "batch_size" in target.declared
                else None,
                stage=lambda words: progress.update(words=words),
                announce=heard.append,
                progress=progress.bench,
            )
    deliver(report, args)
    if args.plot:
        _draw(report, args.plot)
    return 0


def _draw(report: PrecisionReport, path: str) -> None:
    from referee.report.precision import magnitude_plot

    plot = None if report.gradients is None else magnitude_plot(report.gradients)
    if plot is None:
        note(f"no plot written to {path}: the step has no gradients")
    else:
        write_plot(plot, path)


def _met(args: argparse.Namespace, device: Device, heard: list[Finding]) -> tuple[Target, Observation]:
    """Load and call the target; ``heard`` is told of wrong use that is seen meanwhile."""
    from referee.precision.watch import watch

    # Contexts that are made while it loads remember how they were made, and wrong use on which torch raises is named.
    with watch(on_collapse="announce", announce=heard.append):
        target = load_one(args)
        seen = meet(target, device=device).seen
    # The step is asked again when it is known; until then nothing has been raised.
    heard.clear()
    return target, seen


@contextmanager
def _keeping(args: argparse.Namespace, device: Device, heard: list[Finding]) -> Iterator[None]:
    """Where the step raises: name the wrong use that was its cause, and write what was seen, then go on raising."""
    from referee.errors import StepError
    from referee.precision.unfinished import REFUSED, unfinished

    try:
        yield
    except StepError as error:
        cause = next((found for found in reversed(heard) if found.code in REFUSED), None)
        words, hint = (cause.message, cause.hint) if cause else _of_function(error, device)
        named = StepError(f"{error.message} {words}", hint=hint) if words else error
        if args.json or args.report:
            name = args.target or args.stmt
            deliver_files(unfinished(named.message, device=device, name=name, findings=heard), args)
        if named is error:
            raise
        raise named from error


def _of_function(error: BaseException, device: Device) -> tuple[str, str]:
    """What to say of an ``autograd.Function`` that met two dtypes, and the mend; empty where that was not it."""
    from referee.precision.refused import function_words

    if error.__cause__ is None:
        return "", ""
    words, hint = function_words(error.__cause__, device_type=device.name.partition(":")[0])
    return f"{words[:1].upper()}{words[1:]}." if words else "", hint


def _builder(target: Target) -> Callable[[int], tuple[Callable[[], object], Any, Any]]:
    """The target at another batch size: its step, model and optimizer."""

    def build(size: int) -> tuple[Callable[[], object], Any, Any]:
        built = target.rebuild(batch_size=size)
        return built.step, built.model, built.optimizer

    return build


def _sizes(words: str | None) -> tuple[int, ...]:
    from referee.precision.pays import BATCH_SIZES

    if words is None:
        return BATCH_SIZES
    try:
        sizes = tuple(int(word) for word in words.split(","))
    except ValueError:
        sizes = (-1,)
    if any(size < 0 for size in sizes):
        raise OptionError(f"--batch-sizes {words}: these are not batch sizes.", hint="Write for example 1,8,64.")
    return tuple(size for size in sizes if size)


def _low_precisions(word: str | None) -> tuple[str, ...]:
    if word is None:
        return ("bfloat16", "float16")
    name = _LOW.get(word.lower().removeprefix("torch."))
    if name is None:
        raise OptionError(f"--dtype {word}: autocast has bf16 and fp16.", hint="Leave it out to consider both.")
    return (name,)
