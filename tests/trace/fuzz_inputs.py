"""The inputs of the fuzz target: files of many layouts, and what is done to them. Input N is made from seed N alone."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import closing

import zstandard

from referee.testing import Workload, simulate
from referee.trace.builder import TraceBuilder

LEAST_BYTES = 10_000


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


def _packed(member: str, data: bytes, *, more: dict[str, bytes] | None = None) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in {member: data, **(more or {})}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def _zipped(
    member: str, data: bytes, packing: int = zipfile.ZIP_STORED, *, more: dict[str, bytes] | None = None
) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", packing) as archive:
        for name, content in {member: data, **(more or {})}.items():
            archive.writestr(zipfile.ZipInfo(name), content, packing)
    return out.getvalue()


def _with_everything() -> bytes:
    builder = TraceBuilder().device_properties("Fuzz", sm_count=8).metadata(INFO=["a", {"b": None}])
    for index in range(60):
        builder.op(f'aten::"{index}"\n}}, {{"ph"', index * 10_000, 9_000, external_id=index, shape=[[1, 2], []])
        builder.launch("cuLaunchKernel", index * 10_000 + 10, 50, correlation=index, driver=True)
        builder.kernel("kernel é 核", index * 10_000 + 5_000, 3_333, correlation=index, stream=index % 4)
        builder.memset(index * 10_000 + 9_000, 0, correlation=index).annotation(f"step {index}", index * 10_000, 9_999)
        builder.overhead("Buffer Flush", index * 10_000 + 8_500, 300)
    builder.step(1, 0, 280_000).step(2, 300_000, 280_000).step(3, 590_000, 9_000)
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
        "zstandard": zstandard.ZstdCompressor().compress(plain + _noise(LEAST_BYTES)),
        "zstandard with a checksum": zstandard.ZstdCompressor(write_checksum=True).compress(
            plain + _noise(LEAST_BYTES)
        ),
        "tar": _packed("a.json", plain),
        "tar of two": _packed("a.json", plain, more={"b.json": graph}),
        "zip": _zipped("a.json", plain),
        "zip, deflated": _zipped("a.json", plain + _noise(LEAST_BYTES), zipfile.ZIP_DEFLATED),
        "zip of two": _zipped("a.json", plain, more={"b.json": graph}),
        "zip, packed otherwise": _zipped("a.json", _noise(LEAST_BYTES), zipfile.ZIP_BZIP2),
        "keys behind": json.dumps({"traceEvents": events, "x": {"y": [1, {"z": None}] * 300}}).encode(),
        "gzip of a tar": gzip.compress(_packed("a.json.gz", gzip.compress(plain, 0)), 0),
    }
    return made


def _noise(size: int) -> bytes:
    return random.Random(0).randbytes(size).hex().encode()


def rare_layouts() -> dict[str, bytes]:
    """Files that mutations of the others seldom lead to: every fiftieth input is one of them."""
    return {
        "no events": b'{"traceEvents": []}' + b" " * LEAST_BYTES,
        "no event that can be read": b'{"traceEvents": [{"ph": "X" "ts": 1}]}' + b" " * LEAST_BYTES,
        "gzip of nothing": gzip.compress(b"") + bytes(LEAST_BYTES),
        "zip of nothing": b"PK\5\6" + bytes(16) + LEAST_BYTES.to_bytes(2, "little") + bytes(LEAST_BYTES),
        "export of Nsight Systems": _export(rows=200),
        "export of no rows": _export(rows=0),
        "export with bytes for a number": _export(rows=200, more=_BYTES_FOR_A_NUMBER),
        "cut export": _export(rows=200)[:-5000],
        "another database": _database("CREATE TABLE people (name TEXT)"),
    }


_BYTES_FOR_A_NUMBER = (
    "CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT, totalMemory INT)",
    "INSERT INTO TARGET_INFO_GPU VALUES (0, 'Fuzz', x'00ff')",
)


def small_archive() -> bytes:
    """An archive of two members."""
    return _packed("a.json", b"{}", more={"b.json": b"{}"})


def _export(*, rows: int, more: tuple[str, ...] = ()) -> bytes:
    texts = "INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel'), (2, 'k'), (3, 'aten::add')"
    tables = (
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT)",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT, correlationId INT, "
        "globalPid INT, demangledName INT)",
        "CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, globalTid INT, textId INT)",
    )
    filled = [texts] if rows else []
    for row in range(rows):
        at, thread = 10**12 + row * 9_000, 77 << 24
        filled += [
            f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({at}, {at + 900}, {thread + 5}, {row + 1}, 1)",
            f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({at + 2000}, {at + 6000}, 0, 7, {row + 1}, {thread}, 2)",
            f"INSERT INTO NVTX_EVENTS VALUES ({at - 50}, {at + 990}, 59, 'step {row}', {thread + 5}, NULL)",
        ]
    return _database(*tables, *more, *filled)


def _database(*statements: str) -> bytes:
    with closing(sqlite3.connect(":memory:")) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()
        return database.serialize()


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
    """A deeply nested value, as an argument of its own where there are arguments, or anywhere."""
    opening = rng.choice((b"[", b'{"a":', b'[{"ph":"X"},'))
    depth = rng.choice((10, 1_000, 100_000))
    closing = {b"[": b"]", b'{"a":': b"1}", b'[{"ph":"X"},': b"]"}[opening]
    whole = rng.random() < 0.7
    filled = opening * depth + (b"1" if opening != b"[" else b"") + closing * (depth if whole else 0) + b","
    arguments = [match.end() for match in re.finditer(rb'"args": ?\{(?=")', data)]
    if arguments and rng.random() < 0.7:
        at = rng.choice(arguments)
        filled = b'"deep":' + (
            filled if opening != b'{"a":' or not whole else b'{"a":' * depth + b"1" + b"}" * depth + b","
        )
    else:
        at = rng.randrange(len(data))
    return data[:at] + filled + data[at:]


def _empty_out(rng: random.Random, data: bytes) -> bytes:
    """Replace the beginning, the end, or everything by zeros, blanks, or something else that is no trace."""
    filler = rng.choice(
        (b"\0", b" ", b"[", b'{"a": 1}', b"PK\x03\x04", b'{"traceEvents": null}\n', b'["a", 1]', b"[{}]")
    )
    size = rng.choice((1, 100, len(data) // 2, len(data)))
    filled = (filler * (size // len(filler) + 1))[:size] if rng.random() < 0.5 else filler
    return rng.choice((filled + data[size:], data[: len(data) - size] + filled, data + filled))


def _join(rng: random.Random, data: bytes) -> bytes:
    """Two documents, one behind the other."""
    return data + rng.choice((b"", b"\n", b",")) + data[: rng.choice((100, len(data)))]


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


def make_bomb(size: int = 10 << 30) -> bytes:
    """Members of 64 MB of blanks each, one after another."""
    return gzip.compress(b" " * (64 << 20), 9, mtime=0) * (size // (64 << 20))


def arm(bombs: bool) -> None:
    """Make the bomb once, for this process and its children."""
    if bombs and not _BOMB_MEMBER:
        _BOMB_MEMBER.append(make_bomb())


MUTATIONS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _flip, _cut, _drop, _repeat, _insert, _nest, _number, _rename, _unquote, _empty_out, _join,
)  # fmt: skip


RARE_EVERY = 50


def make_input(seed: int, files: dict[str, bytes], *, bombs: bool = False) -> tuple[str, bytes]:
    """Input number ``seed``: what was done to which layout, and the bytes."""
    rng = random.Random(seed)
    if seed % RARE_EVERY == 0:
        files = rare_layouts()
    layout = rng.choice(sorted(files))
    data = files[layout]
    if bombs and rng.random() < 0.0005:
        return f"{layout}: bomb", _bomb(rng, data)
    done = []
    for _ in range(rng.choice((0, 1, 2) if seed % RARE_EVERY == 0 else (1, 1, 1, 2, 4))):
        mutation = rng.choice(MUTATIONS)
        done.append(mutation.__name__)
        data = mutation(rng, data)
        if not data:
            break
    if len(data) < LEAST_BYTES:
        data += b" " * (LEAST_BYTES - len(data))
    return f"{layout}: {', '.join(done)}", data
