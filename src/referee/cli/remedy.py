"""``referee remedy``: which fixes pay here? Each is tried in a process of its own, checked against eager, and timed."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from referee.cli.live import add_budget_argument, add_target_options, parse_budget_ns, parse_params, require_torch
from referee.cli.output import add_output_arguments, check_output_arguments, deliver
from referee.cli.progress import Progress
from referee.errors import OptionError, RefereeError, StepError
from referee.units import NS_PER_S, parse_duration_ns

if TYPE_CHECKING:
    from referee.device.protocol import Device
    from referee.records.remedy import FixTried, RemedyReport
    from referee.remedy.attempt import Load
    from referee.remedy.fix import Fix


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("target", metavar="TARGET", help="FILE.py:NAME or package.module:NAME")
    parser.add_argument("--fix", action="append", default=[], metavar="NAME", help="try this one only (repeatable)")
    parser.add_argument("--with", dest="rewrite", metavar="TARGET", help="hold your own rewrite against TARGET as well")
    parser.add_argument(
        "--in-process", action="store_true", help="try the fixes in this process: quicker, but they may disturb another"
    )
    parser.add_argument("--timeout", default="10min", metavar="TIME", help="longest time for one fix (default: 10min)")
    add_target_options(parser)
    add_budget_argument(parser, default="1s", what="of the interleaved timing of each fix")
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Try every fix asked for, rank, show."""
    check_output_arguments(args)
    budget_ns = parse_budget_ns(args)
    timeout_s = _timeout_s(args)
    require_torch()
    names = _names(args)
    progress = Progress(enabled=not args.no_progress)
    if args.in_process:
        reports = _try_here(args, names, budget_ns=budget_ns, progress=progress)
    else:
        reports = _try_apart(args, names, timeout_s=timeout_s, progress=progress)
    deliver(_united(reports), args)
    return 0


def _timeout_s(args: argparse.Namespace) -> float:
    try:
        timeout_ns = parse_duration_ns(args.timeout)
    except ValueError as error:
        raise OptionError(f"--timeout: {error}.") from error
    if timeout_ns == 0:
        raise OptionError("--timeout 0 leaves no time to try anything.")
    return timeout_ns / NS_PER_S


def _names(args: argparse.Namespace) -> Sequence[str]:
    """The fixes asked for; all of them where none was named."""
    from referee.remedy.fixes import CATALOGUE, fix_named

    for name in args.fix:
        if fix_named(name) is None:
            known = ", ".join(fix.name for fix in CATALOGUE)
            raise OptionError(f"--fix {name}: there is no such fix.", hint=f"Fixes are {known}.")
    if args.fix or args.rewrite:
        return (*args.fix, *([args.rewrite] if args.rewrite else []))
    return tuple(fix.name for fix in CATALOGUE)


def _load(args: argparse.Namespace, spec: str) -> Load:
    from referee.target import load_target

    params = parse_params(args)
    return lambda: load_target(spec, batch_size=args.batch_size, device=args.device, dtype=args.dtype, params=params)


def _fix(args: argparse.Namespace, name: str) -> Fix:
    from referee.remedy.fixes import fix_named, rewrite

    found = fix_named(name)
    return rewrite(name, _load(args, name)) if found is None else found


def _try_here(
    args: argparse.Namespace, names: Sequence[str], *, budget_ns: int, progress: Progress
) -> list[RemedyReport]:
    from referee.remedy.attempt import attempt
    from referee.target import step_errors

    device = _device(args)
    reports = []
    for name in names:
        with step_errors(args.target), progress.stage(f"trying {name}"):
            fix = _fix(args, name)
            reports.append(
                attempt(fix, _load(args, args.target), device=device, budget_ns=budget_ns, progress=progress.bench)
            )
    return reports


def _device(args: argparse.Namespace) -> Device:
    from referee.device.cpu import set_threads
    from referee.device.registry import open_device

    device = open_device(args.device)
    if args.threads:
        set_threads(args.threads)
    return device


def _try_apart(
    args: argparse.Namespace, names: Sequence[str], *, timeout_s: float, progress: Progress
) -> list[RemedyReport]:
    """Each fix in a process of its own: what one compiles, patches or breaks does not reach the next."""
    from referee.remedy.attempt import declined, refusals
    from referee.target import step_errors

    reports: list[RemedyReport] = []
    failed: list[FixTried] = []
    last: RefereeError | None = None
    with step_errors(args.target), progress.stage("looking at the step"):
        senseless = refusals([_fix(args, name) for name in names], _load(args, args.target), device=_device(args))
    plausible = [name for name in names if name not in senseless] or list(names[:1])
    failed += [tried for name, tried in senseless.items() if name not in plausible]
    for name in plausible:
        with progress.stage(f"trying {name} in a process of its own"):
            try:
                reports.append(_run_one(_command(args, name), name, timeout_s=timeout_s))
            except RefereeError as error:
                last = error
                failed.append(declined(_fix(args, name), error.message))
    if not reports:
        # Nothing ran at all: the target itself, not a fix, is what failed.
        raise last if last is not None else OptionError("No fix was named.")
    from dataclasses import replace

    return [replace(reports[0], fixes=(*reports[0].fixes, *failed)), *reports[1:]]


def _command(args: argparse.Namespace, name: str) -> list[str]:
    """The command line that tries one fix in a process of its own."""
    command = [sys.executable, "-m", "referee", "remedy", args.target, "--in-process", "--no-progress", "--json", "-"]
    command += ["--with" if name == args.rewrite else "--fix", name]
    command += ["--device", args.device, "--budget", args.budget]
    for option, value in (("--dtype", args.dtype), ("--batch-size", args.batch_size), ("--threads", args.threads)):
        if value is not None:
            command += [option, str(value)]
    for text in args.param:
        command += ["--param", text]
    return command


def _run_one(command: Sequence[str], name: str, *, timeout_s: float) -> RemedyReport:
    from referee.records.remedy import RemedyReport
    from referee.records.schema import from_json

    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise StepError(f"it did not finish within {timeout_s:g} s") from error
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        words = lines[-1].removeprefix("referee: ") if lines else "no message"
        raise StepError(words if done.returncode in (2, 3) else f"its process ended with {done.returncode}: {words}")
    record = from_json(done.stdout, source=f"the output of {name}")
    if not isinstance(record, RemedyReport):
        raise StepError(f"its process wrote a {record.schema}")
    return record


def _united(reports: Sequence[RemedyReport]) -> RemedyReport:
    """One report of all, measured gains first; provenance is that of the first one that was timed."""
    from referee.records.remedy import RemedyReport, ranked

    timed = [report for report in reports if any(fix.measured_ratio is not None for fix in report.fixes)]
    findings = {f"{f.code} {f.message}": f for report in reports for f in report.findings}
    return RemedyReport(
        name=reports[0].name,
        fixes=ranked(tuple(fix for report in reports for fix in report.fixes)),
        provenance=(timed or reports)[0].provenance,
        findings=tuple(findings.values()),
    )
