"""``referee precision``: which precision for this step, a scaler or not, and what does it gain here?"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from referee.cli.live import add_budget_argument, add_target_arguments, meet, open_live, parse_budget_ns, require_torch
from referee.cli.output import add_output_arguments, check_output_arguments, deliver
from referee.cli.progress import Progress
from referee.errors import OptionError

if TYPE_CHECKING:
    from referee.device.observe import Observation
    from referee.device.protocol import Device
    from referee.target import Target

_LOW = {"bf16": "bfloat16", "bfloat16": "bfloat16", "fp16": "float16", "float16": "float16", "half": "float16"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_target_arguments(parser, dtype_help="consider bf16 or fp16 alone (default: both, bf16 audited)")
    add_budget_argument(parser, default="40s", what="of everything, used as far as needed")
    parser.add_argument(
        "--batch-sizes",
        metavar="N,N,…",
        help="where to look from which batch size it pays (default: 1,8,64; 0: nowhere)",
    )
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Load, watch once, ask every question, show."""
    check_output_arguments(args)
    budget_ns = parse_budget_ns(args)
    low = _low_precisions(args.dtype)
    sizes = _sizes(args.batch_sizes)
    args.dtype = None  # the target itself stays in its own dtype
    device, target, seen = _met(args)
    from referee.precision.advise import Sizes, advise
    from referee.target import step_errors

    progress = Progress(enabled=not args.no_progress)
    with step_errors(target.name), progress.stage(f"precision of {target.name}"):
        report = advise(
            target.step,
            device=device,
            name=target.name,
            model=target.model,
            optimizer=target.optimizer,
            low=low,
            budget_ns=budget_ns,
            seen=seen,
            own_sites=seen.autocast != "off",
            target=target,
            method=seen.method,
            findings=seen.findings,
            sizes=Sizes(build=_builder(target), own=target.batch_size, sizes=sizes)
            if "batch_size" in target.declared
            else None,
            stage=lambda words: progress.update(words=words),
            progress=progress.bench,
        )
    deliver(report, args)
    return 0


def _met(args: argparse.Namespace) -> tuple[Device, Target, Observation]:
    """Open the device and load and call the target; where that raises, wrong use that was seen until then is named."""
    require_torch()
    from referee.errors import StepError
    from referee.precision.watch import watch

    with watch(on_collapse="announce") as watched:
        try:
            device, target = open_live(args)
            return device, target, meet(target, device=device).seen
        except StepError as error:
            for found in watched.findings[-1:]:
                raise StepError(f"{error.message} {found.message}", hint=found.hint) from error
            raise


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
