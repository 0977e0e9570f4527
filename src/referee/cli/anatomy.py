"""``referee anatomy``: what is one operator's call made of?"""

from __future__ import annotations

import argparse
import re

from referee.cli.live import add_budget_argument, parse_budget_ns, require_torch
from referee.cli.output import add_output_arguments, check_output_arguments, deliver
from referee.cli.progress import Progress
from referee.errors import OptionError

_WAYS = ("function", "method", "overload")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("op", metavar="OP", help="an operator of the dispatcher: aten.add.Tensor, aten.mm, mylib::op")
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NxM",
        help="shape of its tensors (once: of all; several times: of each in turn), `scalar` for none",
    )
    parser.add_argument("--dtype", help="dtype of its tensors (default: float32, or what it needs)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda[:N] (default: cpu)")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--grad", dest="mode", action="store_const", const="grad", help="inputs require a gradient")
    modes.add_argument("--no-grad", dest="mode", action="store_const", const="no_grad", help="under no_grad")
    modes.add_argument("--inference", dest="mode", action="store_const", const="inference", help="in inference mode")
    parser.set_defaults(mode="grad")
    parser.add_argument("--autocast", action="store_true", help="under bf16 autocast")
    parser.add_argument("--way", choices=_WAYS, help="how Python calls it (default: as people write it)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="intra-op threads (default: 1)")
    add_budget_argument(parser, default="700ms", what="of the timing")
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Find the operator, make arguments, take the call apart, show it."""
    check_output_arguments(args)
    budget_ns = parse_budget_ns(args)
    if args.threads < 1:
        raise OptionError(f"--threads {args.threads}: this is not a whole number above 0.")
    shapes = tuple(parse_shape(text) for text in args.shape)
    require_torch()
    from referee.anatomy.dissect import dissect
    from referee.cli.output import note
    from referee.device.cpu import set_threads
    from referee.device.dtypes import parse_dtype
    from referee.device.registry import open_device

    device = open_device(args.device)
    set_threads(args.threads)
    progress = Progress(enabled=not args.no_progress)
    with progress.stage(f"anatomy of {args.op}"):
        anatomy = dissect(
            args.op,
            device=device,
            shapes=shapes,
            dtype=str(parse_dtype(args.dtype)).removeprefix("torch.") if args.dtype else None,
            mode=args.mode,
            autocast=args.autocast,
            way=args.way,
            budget_ns=budget_ns,
            announce=note,
            progress=progress.bench,
        )
    deliver(anatomy, args)
    return 0


def parse_shape(text: str) -> tuple[int, ...]:
    """``64x512``, ``64,512``, ``8`` or ``scalar`` as a shape."""
    if text in ("scalar", "()"):
        return ()
    words = re.split(r"[x×,]", text.strip("()"))
    try:
        shape = tuple(int(word) for word in words if word.strip())
    except ValueError:
        shape = ()
    if not shape or min(shape) < 0:
        raise OptionError(f"--shape {text}: this is no shape.", hint="Write for example --shape 64x512.")
    return shape
