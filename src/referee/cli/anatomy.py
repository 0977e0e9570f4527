"""``referee anatomy``: what is one operator's call made of, or what does a step leave for backward?"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from referee.cli.layout import load_torch_once
from referee.cli.live import add_budget_argument, add_target_options, meet, open_on, parse_budget_ns, require_torch
from referee.cli.output import add_output_arguments, check_output_arguments, deliver, note
from referee.cli.progress import Progress
from referee.errors import OptionError

if TYPE_CHECKING:
    from referee.records.anatomy import Anatomy

_WAYS = ("function", "method", "overload")
_OP_BUDGET, _STEP_BUDGET = "700ms", "3s"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "op",
        nargs="?",
        metavar="OP",
        help="an operator (aten.add.Tensor, aten.mm, mylib::op), or a step (FILE.py:NAME) for its tape and grad modes",
    )
    parser.add_argument("--all", metavar="NAMESPACE", help="a coarse ladder of every operator of a namespace, as aten")
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NxM",
        help="shape of its tensors (once: of all; several times: of each in turn), `scalar` for none",
    )
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--grad", dest="mode", action="store_const", const="grad", help="inputs require a gradient")
    modes.add_argument("--no-grad", dest="mode", action="store_const", const="no_grad", help="under no_grad")
    modes.add_argument("--inference", dest="mode", action="store_const", const="inference", help="in inference mode")
    parser.add_argument("--autocast", action="store_true", help="under bf16 autocast")
    parser.add_argument("--way", choices=_WAYS, help="how Python calls it (default: as people write it)")
    parser.add_argument("--tape-svg", metavar="PATH", help="draw the tape, where it is small, to an .svg file")
    parser.add_argument("--variants", action="store_true", help="time other ways to ask for the same work")
    parser.add_argument("--paths", action="store_true", help="the dispatch path in every mode, not only in this one")
    parser.add_argument("--witness", action="store_true", help="hold those paths against recording kernels, in a child")
    add_target_options(parser, dtype_help="dtype of the tensors (default: float32, or what the operator needs)")
    add_budget_argument(parser, default=_OP_BUDGET, what=f"of the timing ({_STEP_BUDGET} for a step)")
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Take an operator or a step apart, or survey a namespace; show it."""
    check_output_arguments(args)
    _check_drawing(args.tape_svg)
    parse_budget_ns(args)
    if args.all is not None:
        return _survey(args)
    if args.op is None:
        raise OptionError("Name an operator or a step.", hint="For example: referee anatomy aten.add.Tensor")
    is_step = ":" in args.op and "::" not in args.op
    found = _step(args) if is_step else _operator(args)
    deliver(found, args)
    if args.tape_svg:
        _draw(found, args.tape_svg)
    return 0


_OF_OPERATORS = ("shape", "mode", "autocast", "way", "variants", "paths", "witness")
"""Options that say how one operator is called or looked at, by the name that argparse gives them."""


def _refuse(args: argparse.Namespace, names: Sequence[str], why: str) -> None:
    """Refuse options that would silently do nothing."""
    for name in names:
        value = getattr(args, name)
        if value:
            word = value if name == "mode" else name
            raise OptionError(f"--{word.replace('_', '-')} {why}.")


def _check_drawing(path: str | None) -> None:
    """Refuse, before anything is measured, a drawing that could not be written afterwards."""
    if not path:
        return
    if Path(path).suffix.lower() != ".svg":
        raise OptionError(f"--tape-svg {path}: the drawing is an SVG file.", hint="Name a file that ends in .svg.")
    parent = Path(path).resolve().parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise OptionError(f"--tape-svg {path} cannot be written.", hint="Name a file in a writable directory.")


def _draw(anatomy: Anatomy, path: str) -> None:
    from referee.records.schema import write_atomically
    from referee.report.tape_svg import render_tape_svg

    if anatomy.tape is None:
        raise OptionError("There is no tape to draw.")
    try:
        picture = render_tape_svg(anatomy.tape, title=anatomy.op)
    except ValueError as error:
        raise OptionError(f"--tape-svg: {error}.") from error
    write_atomically(picture.encode(), path)
    note(f"tape drawn to {path}")


def _operator(args: argparse.Namespace) -> Anatomy:
    shapes = tuple(parse_shape(text) for text in args.shape)
    if args.batch_size or args.param:
        raise OptionError("An operator takes no --batch-size and no --param.", hint="Give --shape instead.")
    require_torch()
    load_torch_once()
    from referee.anatomy.dissect import dissect
    from referee.device.cpu import set_threads
    from referee.device.dtypes import parse_dtype
    from referee.device.registry import open_device

    device = open_device(args.device)
    set_threads(args.threads or 1)
    progress = Progress(enabled=not args.no_progress)
    with progress.stage(f"anatomy of {args.op}"):
        return dissect(
            args.op,
            device=device,
            shapes=shapes,
            dtype=str(parse_dtype(args.dtype)).removeprefix("torch.") if args.dtype else None,
            mode=args.mode or "grad",
            autocast=args.autocast,
            way=args.way,
            budget_ns=parse_budget_ns(args),
            variants=args.variants,
            paths=args.paths or args.witness,
            witness=args.witness,
            announce=note,
            progress=progress.bench,
        )


def _step(args: argparse.Namespace) -> Anatomy:
    _refuse(args, _OF_OPERATORS, f"is for an operator, and {args.op} is a step")
    if args.budget == _OP_BUDGET:
        args.budget = _STEP_BUDGET
    device, (target,) = open_on(args, [args.op])
    from referee.anatomy.cautions import inference_errors
    from referee.anatomy.step import dissect_step
    from referee.target import step_errors

    progress = Progress(enabled=not args.no_progress)
    errors = inference_errors(target.step, target.name)
    with errors, step_errors(target.name), progress.stage(f"tape and grad modes of {target.name}"):
        return dissect_step(
            target.step,
            device=device,
            name=target.name,
            model=target.model,
            rebuild=(lambda: target.rebuild().step) if target.factory else None,
            target=target,
            seen=meet(target, device=device).seen,
            budget_ns=parse_budget_ns(args),
            progress=progress.bench,
        )


def _survey(args: argparse.Namespace) -> int:
    if args.op is not None:
        raise OptionError("--all surveys a namespace: name no operator beside it.")
    _refuse(args, (*_OF_OPERATORS, "dtype", "batch_size", "param", "tape_svg"), "has no meaning for a survey (--all)")
    require_torch()
    from referee.anatomy.survey import survey
    from referee.device.cpu import set_threads
    from referee.device.registry import open_device

    device = open_device(args.device)
    if device.name != "cpu":
        raise OptionError("A survey runs on the CPU: processes that use an accelerator cannot be forked.")
    set_threads(1)
    progress = Progress(enabled=not args.no_progress)
    with progress.stage(f"all operators of {args.all}"):
        deliver(survey(device, namespace=args.all, progress=progress.iteration), args)
    return 0


def parse_shape(text: str) -> tuple[int, ...]:
    """``64x512``, ``64,512``, ``8`` or ``scalar`` as a shape."""
    if text in ("scalar", "()"):
        return ()
    bare = text.removesuffix(",)") if text.startswith("(") else text  # as Python writes a shape of one
    words = re.split(r"[x×,]", bare.strip("()"))
    try:
        shape = tuple(int(word) for word in words)
    except ValueError:
        shape = ()
    if not shape or min(shape) < 0:
        raise OptionError(f"--shape {text}: this is no shape.", hint="Write for example --shape 64x512.")
    return shape
