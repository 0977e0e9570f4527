"""``referee precision``: which precision for this step, a scaler or not, and what does it gain here?"""

from __future__ import annotations

import argparse

from referee.cli.live import add_budget_argument, add_target_arguments, meet, open_live, parse_budget_ns
from referee.cli.output import add_output_arguments, check_output_arguments, deliver
from referee.cli.progress import Progress
from referee.errors import OptionError

_LOW = {"bf16": "bfloat16", "bfloat16": "bfloat16", "fp16": "float16", "float16": "float16", "half": "float16"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_target_arguments(parser, dtype_help="consider bf16 or fp16 alone (default: both, bf16 audited)")
    add_budget_argument(parser, default="20s", what="of everything")
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Load, watch once, ask every question, show."""
    check_output_arguments(args)
    budget_ns = parse_budget_ns(args)
    low = _low_precisions(args.dtype)
    args.dtype = None  # the target itself stays in its own dtype
    device, target = open_live(args)
    from referee.precision.advise import advise
    from referee.target import step_errors

    progress = Progress(enabled=not args.no_progress)
    seen = meet(target, device=device).seen
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
            stage=lambda words: progress.update(words=words),
            progress=progress.bench,
        )
    deliver(report, args)
    return 0


def _low_precisions(word: str | None) -> tuple[str, ...]:
    if word is None:
        return ("bfloat16", "float16")
    name = _LOW.get(word.lower().removeprefix("torch."))
    if name is None:
        raise OptionError(f"--dtype {word}: autocast has bf16 and fp16.", hint="Leave it out to consider both.")
    return (name,)
