"""The fuzz target of the trace reader: mutated files of many layouts must be answered, whatever they hold.

    python tests/trace/fuzz_reader.py [--inputs 100000] [--first-seed 0] [--jobs 2]

Input number N is made from seed N alone, so a failure is repeated with ``--first-seed N --inputs 1``. Every input is
read in a process with 2 GB of address space and a watchdog of 10 s. It is answered if it gives a trace that can be
diagnosed, or one sentence in one line; anything else is a failure, printed with its seed.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import io
import json
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import tarfile
import tempfile
import traceback
import zipfile
from collections.abc import Callable

import zstandard

from referee.errors import RefereeError
from referee.testing import Workload, simulate
from referee.trace.builder import TraceBuilder

LEAST_BYTES = 10_000
WATCHDOG_S = 10
ADDRESS_SPACE = 2 << 30


def _events(data: bytes) -> list[dict]:
    return json.loads(data)["traceEvents"]


def _halves(events: list[dict]) -> list[dict]:
    split = []
    for event in events:
        rest = {key: value for key, value in event.items() if key not in ("ph", "dur")}
        split.append({**rest, "ph": "B"})
        split.append({**rest, "ph": "E", "ts": round(event["ts"] + event["dur"], 3)})
    return split


def _old(events: list[dict]) -> list[dict]:
    names = {"cpu_op": "Operator", "kernel": "Kernel", "cuda_runtime": "Runtime", "gpu_memcpy": "Memcpy"}
    return [
        {
            **e,
            "cat": names.get(e["cat"], e["cat"]),
            "tid": f"stream {e['tid']}",
            "ts": int(e["ts"]),
            "dur": int(e["dur"]),
        }
        for e in events
    ]


def _vendor(events: list[dict]) -> list[dict]:
    names = {"cpu_op": "cpu_op", "kernel": "mtia_ccp_events", "cuda_runtime": "mtia_runtime", "gpu_memcpy": "hpu_op"}
    return [{**e, "cat": names.get(e["cat"], "quantum")} for e in events]


def _packed(member: str, data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo(member)
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _zipped(member: str, data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(member, data)
    return out.getvalue()


def _with_everything() -> bytes:
    builder = TraceBuilder().device_properties("Fuzz", sm_count=8).metadata(INFO=["a", {"b": None}])
    for index in range(60):
        builder.op(f'aten::"{index}"\n}}, {{"ph"', index * 10_000, 9_000, external_id=index, shape=[[1, 2], []])
        builder.launch("cuLaunchKernel", index * 10_000 + 10, 50, correlation=index, driver=True)
        builder.kernel("kernel é 核", index * 10_000 + 5_000, 3_333, correlation=index, stream=index % 4)
        builder.memset(index * 10_000 + 9_000, 0, correlation=index).annotation(f"step {index}", index * 10_000, 9_999)
    return builder.to_json()


def layouts() -> dict[str, bytes]:
    """A file of each layout, before it is damaged."""
    plain = simulate(Workload(ops=40, steps=2, sync_every=9, copy_ns=30_000, collective_ns=9_000, jitter=0.2)).file
    graph = simulate(Workload(ops=120, steps=2, graph=True)).file
    events = _events(plain)
    text = json.dumps([{**e, "ts": str(e["ts"]), "dur": f"{e['dur']}e0"} for e in events]).encode()
    made = {
        "kineto": plain,
        "compact": json.dumps(json.loads(plain), separators=(",", ":")).encode(),
        "everything": _with_everything(),
        "graph": graph,
        "bare list, times as text": text,
        "begin and end": json.dumps({"traceEvents": _halves(events)}).encode(),
        "torch 1.8": json.dumps({"traceEvents": _old(events)}).encode(),
        "other vendors": json.dumps({"displayTimeUnit": "ms", "traceEvents": _vendor(events)}).encode(),
        "utf-16": plain.decode().encode("utf-16"),
        "events first": json.dumps({"traceEvents": events, "deviceProperties": [{"id": 0}], "traceName": "x"}).encode(),
    }
    blanks = b" " * LEAST_BYTES
    made |= {
        "gzip": gzip.compress(plain, 1) + gzip.compress(blanks, 0),
        "gzip members": gzip.compress(graph[:9000], 0) + gzip.compress(graph[9000:], 0),
        "zstandard": zstandard.ZstdCompressor().compress(plain + os.urandom(0) + _noise(LEAST_BYTES)),
        "tar": _packed("a.json", plain),
        "zip": _zipped("a.json", plain),
        "gzip of a tar": gzip.compress(_packed("a.json.gz", gzip.compress(plain, 0)), 0),
    }
    return made


def _noise(size: int) -> bytes:
    return random.Random(0).randbytes(size).hex().encode()


# mutations of bytes


def _flip(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 50))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(min(LEAST_BYTES, len(data)), len(data) + 1)]


def _drop(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.choice((1, 2, 10, 1000)) :]


def _repeat(rng: random.Random, data: bytes) -> bytes:
    at, size = rng.randrange(len(data)), rng.choice((1, 10, 1000, 5000))
    return data[: at + size] + data[at:]


def _insert(rng: random.Random, data: bytes) -> bytes:
    pieces = (
        b'"',
        b"\\",
        b"\x00",
        b"\x01",
        b"\n",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b"]}",
        b"\xff\xfe",
        b"\xc3",
        b"\xed\xa0\x80",
    )
    at = rng.randrange(len(data))
    return data[:at] + rng.choice(pieces) * rng.choice((1, 1, 3)) + data[at:]


def _nest(rng: random.Random, data: bytes) -> bytes:
    at = rng.choice([match.end() for match in re.finditer(rb'"args": ?', data)] or [rng.randrange(len(data))])
    opening = rng.choice((b"[", b'{"a":', b'[{"ph":"X"},'))
    depth = rng.choice((10, 1_000, 100_000))
    closing = {b"[": b"]", b'{"a":': b"1}", b'[{"ph":"X"},': b"]"}[opening]
    filled = opening * depth + (b"1" if opening != b"[" else b"") + closing * (depth if rng.random() < 0.7 else 0)
    return data[:at] + filled + b"," + data[at:]


# mutations of numbers, texts and fields

_NUMBERS = (
    b"0", b"-1", b"1e400", b"-1e400", b"1e-400", b"1E+999999999", b"NaN", b"-Infinity", b"9" * 25, b"9" * 5000, b"-0.0",
    b"0.0004999999999999999999999", b"18446744073709551616", b"9223372036854775807", b'"soon"', b"null", b"true", b"[]",
    b"{}",
    b'"1727743122000000.1234567"', b"01", b"1.", b".5", b"1e", b"1727743122000000000000.5",
)  # fmt: skip


def _number(rng: random.Random, data: bytes) -> bytes:
    for _ in range(rng.choice((1, 1, 3, 30))):
        found = list(re.finditer(rb"(?<=[:\[ ])-?\d+(\.\d+)?(?=[,}\]])", data[: 1 << 17]))
        if not found:
            return data
        match = rng.choice(found)
        data = data[: match.start()] + rng.choice(_NUMBERS) + data[match.end() :]
    return data


def _rename(rng: random.Random, data: bytes) -> bytes:
    fields = (
        b'"ph"',
        b'"ts"',
        b'"dur"',
        b'"cat"',
        b'"name"',
        b'"pid"',
        b'"tid"',
        b'"args"',
        b'"correlation"',
        b'"stream"',
    )
    one, other = rng.sample(fields, 2)
    if rng.random() < 0.5:
        at = [match.start() for match in re.finditer(re.escape(one), data)]
        if at:
            chosen = rng.choice(at)
            return data[:chosen] + other + data[chosen + len(one) :]
    return data.replace(one, other)


def _unquote(rng: random.Random, data: bytes) -> bytes:
    found = [match.start() for match in re.finditer(rb'\\?"', data)]
    for at in sorted(rng.sample(found, min(len(found), rng.choice((1, 1, 4)))), reverse=True):
        data = data[:at] + data[at + 1 :] if rng.random() < 0.5 else data[:at] + b'"' + data[at:]
    return data


def _bomb(rng: random.Random, data: bytes) -> bytes:
    """A file of some 10 MB that unpacks to 10 GB."""
    return gzip.compress(data[: len(data) // 2], 0) + _BOMB_MEMBER[0]


_BOMB_MEMBER: list[bytes] = []


def _make_bomb(size: int) -> bytes:
    """Members of 64 MB of blanks each, one after another."""
    return gzip.compress(b" " * (64 << 20), 9, mtime=0) * (size // (64 << 20))


MUTATIONS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _flip, _cut, _drop, _repeat, _insert, _nest, _number, _rename, _unquote,
)  # fmt: skip


def make_input(seed: int, files: dict[str, bytes], *, bombs: bool = False) -> tuple[str, bytes]:
    """Input number ``seed``: what was done to which layout, and the bytes."""
    rng = random.Random(seed)
    layout = rng.choice(sorted(files))
    data = files[layout]
    if bombs and rng.random() < 0.0005:
        return f"{layout}: bomb", _bomb(rng, data)
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        mutation = rng.choice(MUTATIONS)
        done.append(mutation.__name__)
        data = mutation(rng, data)
        if not data:
            break
    if len(data) < LEAST_BYTES:
        data += b" " * (LEAST_BYTES - len(data))
    return f"{layout}: {', '.join(done)}", data


def answer(path: str) -> list[str]:
    """What the reader says to the file: the finding codes, or the kind of error. Raises what must not be raised."""
    from referee.analysis.diagnose import diagnose
    from referee.trace.reader import read_trace

    try:
        trace = read_trace(path)
    except RefereeError as error:
        text = str(error)
        if "\n" in text or not text.strip():
            raise AssertionError(f"not one sentence in one line: {text[:300]!r}") from error
        return ["error: " + re.sub(r"[^a-z ]", "", error.message.replace(path, "").lower()).strip()[:60]]
    report = diagnose(trace)
    if report.idle.host_starved_ns + report.idle.synchronised_ns + report.idle.dependency_ns + report.idle.other_ns != (
        report.totals.idle_ns
    ):
        raise AssertionError("the causes of idle time do not sum to it")
    return [finding.code for finding in trace.findings] or ["no findings"]


def _alarm(*_: object) -> None:
    raise TimeoutError(f"no answer within {WATCHDOG_S} s")


def try_seeds(
    seeds: list[int], *, limit_memory: bool = True, bombs: bool = True
) -> tuple[collections.Counter, list[str]]:
    """Counts of answers, and the failures, of some seeds."""
    if limit_memory:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    signal.signal(signal.SIGALRM, _alarm)
    files = layouts()
    if bombs:
        _BOMB_MEMBER[:] = [_make_bomb(10 << 30)]
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
                counts.update(set(answer(path)) | {"answered"})
            except BaseException:  # noqa: BLE001 - whatever it is, it is the failure that is looked for
                failures.append(f"seed {seed} ({what}):\n{traceback.format_exc(limit=-4)}")
            finally:
                signal.alarm(0)
    return counts, failures


def main() -> int:
    """Try many seeds over several processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-bombs", action="store_true", help="skip the gzip members that claim 10 GB")
    args = parser.parse_args()
    seeds = range(args.first_seed, args.first_seed + args.inputs)
    batches = [list(seeds[start : start + 500]) for start in range(0, len(seeds), 500)]
    counts: collections.Counter = collections.Counter()
    failures: list[str] = []
    with multiprocessing.get_context("fork").Pool(args.jobs, maxtasksperchild=20) as pool:
        jobs = [pool.apply_async(try_seeds, (batch,), {"bombs": not args.no_bombs}) for batch in batches]
        for number, job in enumerate(jobs, 1):
            found, failed = job.get()
            counts += found
            failures += failed
            print(f"\r{number * 500:,} tried, {len(failures)} failures", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for text, count in counts.most_common():
        print(f"{count:8,}  {text}")
    for failure in failures[:50]:
        print(failure)
    print(f"{counts['answered']:,} answered, {len(failures):,} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
