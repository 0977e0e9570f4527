"""The fuzz target of the trace reader: mutated files of many layouts must be answered, whatever they hold.

    python tests/trace/fuzz_reader.py [--inputs 100000] [--first-seed 0] [--jobs 2] [--seconds 270 --record RUNS.jsonl]
    python tests/trace/fuzz_reader.py --summary RUNS.jsonl [--inputs 100000]

Input number N is made from seed N alone, so a failure is repeated with ``--first-seed N --inputs 1``. Every input is
read in a process with 2 GB of address space and a watchdog of 10 s. It is answered if it gives a trace that can be
diagnosed, or one sentence in one line; anything else is a failure, printed with its seed. A run, or the recorded slices
of one, also fails if a finding code of the reader or a place at which it raises an error was never reached.
"""

from __future__ import annotations

import argparse
import ast
import collections
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import referee.trace
from referee.errors import PackageMissing, RefereeError, TraceError
from referee.records.finding import CODES
from referee.trace.columns import Trace

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # also where this file is loaded by its path
from fuzz_inputs import LEAST_BYTES, arm, layouts, make_bomb, make_input, small_archive

__all__ = ["LEAST_BYTES", "answer", "layouts", "make_bomb", "try_seeds"]
WATCHDOG_S = 10
ADDRESS_SPACE = 2 << 30
BATCH = 250
READER = Path(str(referee.trace.__path__[0]))
_RAISED = ("TraceError", "Unreadable")


# what there is to be reached


def reader_codes() -> set[str]:
    """Every finding code that the reader's own source names."""
    constants = (node.value for _, node in _nodes() if isinstance(node, ast.Constant))
    return {value for value in constants if isinstance(value, str) and value in CODES}


def error_places() -> dict[str, tuple[int, int]]:
    """Every place at which the reader makes an error: its name, and its first and last line."""
    return {
        f"{name}:{node.lineno}": (node.lineno, node.end_lineno or node.lineno)
        for name, node in _nodes()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _RAISED
    }


def _nodes() -> Iterator[tuple[str, ast.AST]]:
    for path in sorted(READER.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            yield path.name, node


class _Witness:
    """Notes where errors are made, by watching their constructors."""

    def __init__(self) -> None:
        from referee.trace.archive import Unreadable

        self.places: set[str] = set()
        self._known = error_places()
        for kind in (TraceError, Unreadable):
            self._watch(kind)

    def _watch(self, kind: type[Exception]) -> None:
        original = kind.__init__

        def noted(error: Exception, *args: object, **keys: object) -> None:
            frame = sys._getframe(1)
            name, line = os.path.basename(frame.f_code.co_filename), frame.f_lineno
            for place, (first, last) in self._known.items():
                if place.startswith(f"{name}:") and first <= line <= last:
                    self.places.add(place)
            original(error, *args, **keys)

        kind.__init__ = noted  # type: ignore[method-assign,assignment]


# one input


def answer(path: str, *, cache: str | None = None) -> list[str]:
    """What the reader says to the file: the finding codes, or the kind of error. Raises what must not be raised.

    With ``cache`` the file is read through it three times: to fill it, from it, and behind a damaged entry.
    """
    from referee.analysis.diagnose import diagnose
    from referee.trace.reader import read_trace

    try:
        trace = read_trace(path)
    except RefereeError as error:
        return [_said(error)]
    codes = [finding.code for finding in trace.findings]
    if cache is not None:
        codes += _through(path, cache, trace)
    report = diagnose(trace)
    if report.idle.host_starved_ns + report.idle.synchronised_ns + report.idle.dependency_ns + report.idle.other_ns != (
        report.totals.idle_ns
    ):
        raise AssertionError("the causes of idle time do not sum to it")
    return codes or ["no findings"]


def _through(path: str, cache: str, trace: Trace) -> list[str]:
    """Codes that only reading through a cache leads to. Raises if that gives another trace."""
    from referee.trace.reader import read_trace

    said = []
    for turn in range(3):
        found = read_trace(path, cache=cache)
        said += [finding.code for finding in found.findings if finding.code == "not-cached"]
        same = [finding for finding in found.findings if finding.code != "not-cached"] == list(trace.findings)
        columns = ("start_ns", "end_ns", "name", "kind", "device", "stream", "correlation")
        if not same or any(getattr(found.rows, one).tobytes() != getattr(trace.rows, one).tobytes() for one in columns):
            raise AssertionError("a cache changes the answer")
        if turn == 1:
            _damage(Path(cache))
    for entry in Path(cache).iterdir():
        entry.unlink()
    return said[:1]


def _damage(cache: Path) -> None:
    """Change one bit of every entry."""
    for entry in cache.iterdir():
        data = bytearray(entry.read_bytes())
        data[len(data) // 2] ^= 1
        entry.write_bytes(data)


def _said(error: RefereeError) -> str:
    text = str(error)
    if "\n" in text or not text.strip():
        raise AssertionError(f"not one sentence in one line: {text[:300]!r}") from error
    return "one sentence"


def odd_request(seed: int, path: str) -> str:
    """Ask for what cannot be had: missing files, directories, members, ranks, remote stores; answers what came."""
    from referee.trace.reader import read_trace
    from referee.trace.source import find_traces

    folder = os.path.dirname(path)
    hollow, archive = os.path.join(folder, "hollow"), os.path.join(folder, "archive")
    os.makedirs(hollow, exist_ok=True)
    with open(archive, "wb") as file:
        file.write(small_archive())
    requests = (
        lambda: read_trace(f"{path}.missing"),
        lambda: read_trace(folder),
        lambda: read_trace("\0"),
        lambda: read_trace(f"{archive}!no-such-member.json"),
        lambda: read_trace("memory://nowhere/x.json"),
        lambda: read_trace(os.devnull),
        lambda: find_traces([hollow]),
        lambda: find_traces([f"{folder}/*.none"]),
        lambda: find_traces([path], rank=seed),
    )
    try:
        random.Random(seed).choice(requests)()
    except PackageMissing:
        return "a package is missing"
    except RefereeError as error:
        return _said(error)
    return "no findings"


CACHE_EVERY = 10
"""Every so many inputs are read through a cache as well."""
ODD_EVERY = 100
"""Besides every so many inputs something is asked for that cannot be had."""


def _alarm(*_: object) -> None:
    raise TimeoutError(f"no answer within {WATCHDOG_S} s")


def try_seeds(
    seeds: list[int], *, limit_memory: bool = True, bombs: bool = True
) -> tuple[collections.Counter, list[str], set[str]]:
    """Counts of answers, the failures, and the places at which errors were made, of some seeds."""
    if limit_memory:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    signal.signal(signal.SIGALRM, _alarm)
    files = layouts()
    arm(bombs)
    witness = _witness()
    counts: collections.Counter = collections.Counter()
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "input")
        for seed in seeds:
            what, data = make_input(seed, files, bombs=bombs)
            with open(path, "wb") as file:
                file.write(data)
            signal.alarm(WATCHDOG_S)
            try:
                cache = os.path.join(folder, "cache") if seed % CACHE_EVERY == 0 else None
                counts.update({*answer(path, cache=cache), "answered"})
                if seed % ODD_EVERY == 0:
                    odd_request(seed, path)
            except BaseException:  # noqa: BLE001 - whatever it is, it is the failure that is looked for
                failures.append(f"seed {seed} ({what}):\n{traceback.format_exc(limit=-4)}")
            finally:
                signal.alarm(0)
    return counts, failures, witness.places


_WITNESSES: list[_Witness] = []


def _witness() -> _Witness:
    """One for each process: constructors are watched once."""
    if not _WITNESSES:
        _WITNESSES.append(_Witness())
    return _WITNESSES[0]


# many inputs


def run(args: argparse.Namespace) -> dict:
    """Try seeds over several processes until they are through, or the time is; answers the record of the run."""
    arm(not args.no_bombs)
    counts: collections.Counter = collections.Counter()
    failures: list[str] = []
    places: set[str] = set()
    begun, done, end = time.monotonic(), args.first_seed, args.first_seed + args.inputs
    with multiprocessing.get_context("fork").Pool(args.jobs, maxtasksperchild=40) as pool:
        while done < end and time.monotonic() - begun < args.seconds:
            starts = range(done, min(done + BATCH * args.jobs * 2, end), BATCH)
            batches = [list(range(start, min(start + BATCH, end))) for start in starts]
            jobs = [pool.apply_async(try_seeds, (batch,), {"bombs": not args.no_bombs}) for batch in batches]
            for job in jobs:
                found, failed, reached = job.get()
                counts += found
                failures += failed
                places |= reached
            done = batches[-1][-1] + 1
            print(f"\r{done - args.first_seed:,} tried, {len(failures)} failures", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return {
        "first_seed": args.first_seed,
        "inputs": done - args.first_seed,
        "seconds": round(time.monotonic() - begun, 1),
        "failures": failures[:50],
        "counts": dict(counts.most_common()),
        "places": sorted(places),
    }


def summarise(records: list[dict], *, wanted: int) -> int:
    """Print what some runs reached together; answers the exit status."""
    counts: collections.Counter = collections.Counter()
    seeds: set[int] = set()
    for record in records:
        counts.update(record["counts"])
        seeds.update(range(record["first_seed"], record["first_seed"] + record["inputs"]))
        for failure in record["failures"]:
            print(failure)
    places = {place for record in records for place in record["places"]}
    for text, count in counts.most_common():
        print(f"{count:9,}  {text}")
    unreached = sorted(reader_codes() - set(counts)) + sorted(set(error_places()) - places)
    print(f"{len(reader_codes() & set(counts))} of {len(reader_codes())} finding codes reached")
    print(f"{len(set(error_places()) & places)} of {len(error_places())} places at which an error is made reached")
    print(f"not reached: {', '.join(unreached) or 'none'}")
    failed = sum(len(record["failures"]) for record in records)
    print(f"{len(seeds):,} different inputs of {wanted:,}, {counts['answered']:,} answered, {failed:,} failures")
    return 1 if failed or unreached or len(seeds) < wanted else 0


def main() -> int:
    """Try many seeds, or summarise what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after this time, at a whole batch")
    parser.add_argument("--record", metavar="PATH", help="append what was tried and reached as a line of JSON")
    parser.add_argument("--summary", metavar="PATH", help="summarise what was recorded, and try nothing")
    parser.add_argument("--no-bombs", action="store_true", help="skip the gzip members that claim 10 GB")
    args = parser.parse_args()
    if args.summary:
        records = [json.loads(line) for line in Path(args.summary).read_text().splitlines()]
        return summarise(records, wanted=args.inputs)
    record = run(args)
    if args.record:
        with open(args.record, "a") as file:
            file.write(json.dumps(record) + "\n")
        for failure in record["failures"]:
            print(failure)
        print(
            f"seeds {record['first_seed']}..{record['first_seed'] + record['inputs'] - 1}: "
            f"{len(record['failures'])} failures in {record['seconds']} s"
        )
        return 1 if record["failures"] else 0
    return summarise([record], wanted=args.inputs)


if __name__ == "__main__":
    raise SystemExit(main())
