"""SQLite exports of Nsight Systems: files built by hand after the documented layout, against the same trace as JSON."""

from __future__ import annotations

import gzip
import json
import sqlite3
from dataclasses import asdict
from pathlib import Path

import pytest

from referee.analysis.diagnose import diagnose
from referee.cli.main import main
from referee.errors import TraceError
from referee.trace.builder import TraceBuilder
from referee.trace.columns import NONE, Kind, Trace
from referee.trace.details import read_details
from referee.trace.reader import read_trace
from referee.trace.source import find_traces
from referee.trace.totals import kernels_per_step, totals

PROCESS, OTHER = 77 << 24, 78 << 24
SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
    globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, gridX INTEGER, blockX INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER,
    streamId INTEGER, correlationId INTEGER, globalPid INTEGER, syncType INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, globalTid INTEGER,
    textId INTEGER, domainId INTEGER);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, smCount INTEGER, totalMemory INTEGER);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER);
"""
BASE = 5_000_000_000


def export(path: Path) -> Path:
    """Two steps of two launches each, a copy, a fill, a wait, an operator, and a mark that is no row."""
    with sqlite3.connect(path) as database:
        database.executescript(SCHEMA)
        names = [
            "",
            "cudaLaunchKernel_v7000",
            "add<float>(int)",
            "add",
            "cudaMemcpyAsync_v3020",
            "cuLaunchKernel",
            "step 7",
        ]
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", list(enumerate(names)))

        def insert(table: str, *values: object) -> None:
            database.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)

        for step in range(2):
            at = BASE + step * 100_000
            insert("NVTX_EVENTS", at, at + 90_000, 59, f"ProfilerStep#{step}", PROCESS + 5, None, 0)
            insert("NVTX_EVENTS", at + 5, at + 5_000, 59, "aten::add, seq = 12, op_id = 3", PROCESS + 5, None, 0)
            for index in range(2):
                number = 10 * step + index + 1
                name = 5 if index else 1
                insert("CUPTI_ACTIVITY_KIND_RUNTIME", at + 10 + index * 2_000, at + 1_010 + index * 2_000, 0,
                       PROCESS + 5, number, name, 0)  # fmt: skip
                insert("CUPTI_ACTIVITY_KIND_KERNEL", at + 3_000 + index * 4_000, at + 6_001 + index * 4_000, 1, 1, 7,
                       number, PROCESS, 2, 3, 8, 128)  # fmt: skip
        insert("NVTX_EVENTS", BASE + 50_000, None, 34, "a mark", PROCESS + 5, None, 0)
        insert("NVTX_EVENTS", BASE + 51_000, BASE + 52_000, 60, None, PROCESS + 5, 6, 0)
        insert("CUPTI_ACTIVITY_KIND_RUNTIME", BASE + 20_000, BASE + 21_000, 0, PROCESS + 5, 50, 4, 0)
        insert("CUPTI_ACTIVITY_KIND_MEMCPY", BASE + 22_000, BASE + 25_000, 1, 8, 50, PROCESS, 4096, 1)
        insert("CUPTI_ACTIVITY_KIND_MEMSET", BASE + 26_000, BASE + 27_000, 1, 8, 51, PROCESS, 64)
        insert("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", BASE + 30_000, BASE + 31_000, 1, 8, 52, PROCESS, 2)
        insert("TARGET_INFO_GPU", 4, "NVIDIA H100", 132, 80 << 30)
        insert("TARGET_INFO_CUDA_DEVICE", 4, 1)
    return path


def the_same() -> Trace:
    builder = TraceBuilder(base_ns=BASE)
    for step in range(2):
        at = step * 100_000
        builder.step(step, at, 90_000).op("aten::add", at + 5, 4_995)
        for index in range(2):
            number = 10 * step + index + 1
            name = "cuLaunchKernel" if index else "cudaLaunchKernel"
            builder.launch(name, at + 10 + index * 2_000, 1_000, correlation=number, driver=bool(index))
            builder.kernel("add<float>(int)", at + 3_000 + index * 4_000, 3_001, correlation=number, device=1)
    builder.annotation("step 7", 51_000, 1_000)
    builder.launch("cudaMemcpyAsync", 20_000, 1_000, correlation=50)
    builder.memcpy(22_000, 3_000, name="Memcpy HtoD", correlation=50, stream=8, device=1)
    builder.memset(26_000, 1_000, correlation=51, stream=8, device=1)
    builder.device_sync("Stream Wait Event", 30_000, 1_000, correlation=52, stream=8, device=1)
    return builder.build()


def test_an_export_gives_the_columns_of_the_same_trace(tmp_path: Path):
    found, expected = read_trace(export(tmp_path / "report.sqlite")), the_same()
    assert asdict(totals(found)) == asdict(totals(expected))
    assert kernels_per_step(found) == kernels_per_step(expected) == (2, 2)
    assert [step.name for step in found.steps] == ["ProfilerStep#0", "ProfilerStep#1"]
    assert found.base_ns == BASE
    for name in ("start_ns", "end_ns", "kind", "device", "stream", "correlation"):
        assert getattr(found.rows, name).tolist() == getattr(expected.rows, name).tolist(), name
    assert [found.name_of(row) for row in range(len(found.rows))] == [
        expected.name_of(row) for row in range(len(expected.rows))
    ]
    assert found.links.launch_of.tolist() == expected.links.launch_of.tolist()
    assert found.links.operator_of.tolist() == expected.links.operator_of.tolist()
    assert found.threads[0] == ("77", "5")
    assert [(device.ordinal, device.name, device.sm_count) for device in found.devices] == [(1, "NVIDIA H100", 132)]
    assert diagnose(found).verdict.regime == diagnose(expected).verdict.regime


def test_packed_and_as_written(tmp_path: Path):
    path = export(tmp_path / "report.sqlite")
    packed = tmp_path / "report.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    before = path.read_bytes()
    assert read_trace(packed).rows.start_ns.tolist() == read_trace(path).rows.start_ns.tolist()
    assert path.read_bytes() == before
    assert sorted(found.name for found in tmp_path.iterdir()) == ["report.sqlite", "report.sqlite.gz"]


def test_processes_that_number_their_launches_alike(tmp_path: Path):
    path = export(tmp_path / "report.sqlite")
    with sqlite3.connect(path) as database:
        for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL"):
            key = "globalTid" if table.endswith("RUNTIME") else "globalPid"
            device = "" if table.endswith("RUNTIME") else ", deviceId = 0"
            database.execute(f"CREATE TABLE more AS SELECT * FROM {table}")
            database.execute(
                f"UPDATE more SET {key} = {key} + {OTHER - PROCESS}, start = start + 7, end = end + 7{device}"
            )
            database.execute(f"INSERT INTO {table} SELECT * FROM more")
            database.execute("DROP TABLE more")
    trace = read_trace(path)
    assert "duplicate-correlation" not in [finding.code for finding in trace.findings]
    for row in trace.rows.of(Kind.KERNEL):
        launch = trace.links.launch_of[row]
        assert trace.threads[trace.rows.thread[launch]][0] == trace.threads[trace.rows.thread[row]][0]


def test_grids_and_bytes_are_read_on_demand(tmp_path: Path):
    trace = read_trace(export(tmp_path / "report.sqlite"))
    launches = read_details(trace).launches
    kinds = [Kind(int(trace.rows.kind[row])) for row in launches.rows]
    stated = zip(kinds, launches.grid.tolist(), launches.block.tolist(), launches.size_bytes.tolist(), strict=True)
    assert sorted(stated) == sorted(
        [(Kind.KERNEL, 8, 128, NONE)] * 4 + [(Kind.MEMCPY, 0, 0, 4096), (Kind.MEMSET, 0, 0, 64)]
    )
    (tmp_path / "report.sqlite").write_bytes(b"SQLite format 3\0 and no more")
    assert len(read_details(trace).launches.rows) == 0


def test_a_directory_gives_exports_and_names_other_databases(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    report, other, folder = tmp_path / "report.sqlite", tmp_path / "other.sqlite", str(tmp_path)
    export(report)
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE people (name TEXT)")
    passed_over: list[str] = []
    assert find_traces([folder], passed_over=passed_over) == [str(report)]
    assert passed_over == [str(other)]
    assert main(["trace", folder, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [one["message"] for one in found if one["code"] == "unreadable"] == [
        f"{other} is an SQLite file, but no export of Nsight Systems: passed over."
    ]
    report.unlink()
    with pytest.raises(TraceError, match="holds no trace"):
        find_traces([folder])


def test_a_checksum_that_is_wrong_is_said_of_an_export_too(tmp_path: Path):
    data = bytearray(gzip.compress(export(tmp_path / "report.sqlite").read_bytes()))
    data[-8] ^= 1
    (tmp_path / "report.sqlite.gz").write_bytes(data)
    trace = read_trace(tmp_path / "report.sqlite.gz")
    assert "bad-checksum" in [finding.code for finding in trace.findings]


def test_tables_and_columns_that_are_not_there(tmp_path: Path):
    path = tmp_path / "old.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT)")
        database.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, 9, 0, 7), (20, 25, 0, 7), ('soon', 1, 0, 7)"
        )
    trace = read_trace(path)
    assert (totals(trace).busy_ns, totals(trace).window_ns) == (9, 20)
    assert trace.names == ("unnamed",)
    assert [f.evidence["events"] for f in trace.findings if f.code == "unusable-times"] == [1]


def test_what_is_no_export(tmp_path: Path):
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE people (name TEXT)")
    with pytest.raises(TraceError, match="no export of Nsight Systems"):
        read_trace(path)
    with sqlite3.connect(path) as database:
        database.executescript(SCHEMA)
    with pytest.raises(TraceError, match="holds no events"):
        read_trace(path)
    path = export(tmp_path / "cut.sqlite")
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(TraceError, match="SQLite file that cannot be read") as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)
