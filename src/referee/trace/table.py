"""How are a trace's rows handed on? As one flat table: Arrow, polars, pandas, Parquet files, or answers to SQL.

:data:`TABLE` says what each column is; the page in the documentation is made from it. Texts are dictionary-encoded, so
that a table of a million rows stays small. The libraries are extras, loaded only when asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from referee.errors import OptionError, PackageMissing, UserError
from referee.trace.columns import NONE, Kind, Trace
from referee.trace.details import details_of
from referee.trace.steps import step_of

EXTRA = "tables"


@dataclass(frozen=True, kw_only=True)
class Texts:
    """A column of texts: a code for each row into ``labels``; a code of :data:`NONE` is no text."""

    codes: NDArray[np.int32]
    labels: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class TableColumn:
    """One column: its name, type, unit, meaning, and how it is taken from a trace."""

    name: str
    dtype: str
    unit: str
    meaning: str
    take: Callable[[Trace], NDArray[Any] | Texts]
    nullable: bool = False
    """:data:`NONE` stands for nothing and becomes null."""


def _texts(codes: NDArray[Any], labels: Sequence[str]) -> Texts:
    return Texts(codes=codes.astype(np.int32), labels=labels)


def _steps(trace: Trace) -> Texts:
    """Of device rows the step that launched them, of host rows the one they start in."""
    launch = trace.links.launch_of
    time = np.where(launch != NONE, trace.rows.start_ns[launch], trace.rows.start_ns)
    labels = tuple(dict.fromkeys(step.name for step in trace.steps))
    code = np.array([*(labels.index(step.name) for step in trace.steps), NONE], np.int32)
    return _texts(code[step_of(trace.steps, time)], labels)


TABLE: tuple[TableColumn, ...] = (
    TableColumn(
        name="row", dtype="int64", unit="", meaning="Row number: rows are sorted by start, longer first.",
        take=lambda t: np.arange(len(t.rows)),
    ),
    TableColumn(
        name="start_ns", dtype="int64", unit="ns", meaning="Start, since the trace's base time.",
        take=lambda t: t.rows.start_ns,
    ),
    TableColumn(name="end_ns", dtype="int64", unit="ns", meaning="End.", take=lambda t: t.rows.end_ns),
    TableColumn(
        name="duration_ns", dtype="int64", unit="ns", meaning="Duration.",
        take=lambda t: t.rows.end_ns - t.rows.start_ns,
    ),
    TableColumn(name="name", dtype="text", unit="", meaning="Name.", take=lambda t: _texts(t.rows.name, t.names)),
    TableColumn(
        name="category", dtype="text", unit="", meaning="Category as the file writes it.",
        take=lambda t: _texts(t.rows.category, t.categories),
    ),
    TableColumn(
        name="kind", dtype="text", unit="", meaning="What the row is, by its category: "
        + ", ".join(kind.name.lower() for kind in Kind) + ".",
        take=lambda t: _texts(t.rows.kind, [kind.name.lower() for kind in Kind]),
    ),
    TableColumn(
        name="pid", dtype="text", unit="", meaning="Process as the file writes it.",
        take=lambda t: _texts(t.rows.thread, [pid for pid, _ in t.threads]),
    ),
    TableColumn(
        name="tid", dtype="text", unit="", meaning="Thread as the file writes it.",
        take=lambda t: _texts(t.rows.thread, [tid for _, tid in t.threads]),
    ),
    TableColumn(
        name="device", dtype="int32", unit="", meaning="Device of a device row.", nullable=True,
        take=lambda t: t.rows.device,
    ),
    TableColumn(
        name="stream", dtype="int64", unit="", meaning="Stream of a device row.", nullable=True,
        take=lambda t: t.rows.stream,
    ),
    TableColumn(
        name="correlation", dtype="int64", unit="", meaning="Correlation id that ties a device row to its call.",
        nullable=True, take=lambda t: t.rows.correlation,
    ),
    TableColumn(
        name="external_id", dtype="int64", unit="", meaning="External id that ties a call to its operator.",
        nullable=True, take=lambda t: t.rows.external_id,
    ),
    TableColumn(
        name="launch", dtype="int64", unit="", meaning="Of a device row: the row number of its launch.", nullable=True,
        take=lambda t: t.links.launch_of,
    ),
    TableColumn(
        name="is_launch", dtype="bool", unit="", meaning="The call counts as a launch.",
        take=lambda t: t.links.is_launch,
    ),
    TableColumn(
        name="operator", dtype="int64", unit="", meaning="Of a call: the row number of the innermost operator.",
        nullable=True, take=lambda t: t.links.operator_of,
    ),
    TableColumn(
        name="step", dtype="text", unit="", nullable=True, take=_steps,
        meaning="The step that the row starts in, of a device row the one that launched it.",
    ),
    TableColumn(
        name="forward", dtype="int64", unit="", nullable=True, take=lambda t: details_of(t).backward.forward_of,
        meaning="Of a backward operator: the row number of its forward operator.",
    ),
    TableColumn(
        name="backward", dtype="int64", unit="", nullable=True, take=lambda t: details_of(t).backward.backward_of,
        meaning="Of a forward operator: the row number of its backward operator, of several the first.",
    ),
    TableColumn(
        name="sequence", dtype="int64", unit="", nullable=True, take=lambda t: details_of(t).backward.sequence,
        meaning="Of an operator: autograd's sequence number.",
    ),
    TableColumn(
        name="forward_thread", dtype="int64", unit="", nullable=True,
        take=lambda t: details_of(t).backward.forward_thread,
        meaning="Of an operator: the profiler's number of the thread that ran its forward, 0 on a forward itself.",
    ),
)  # fmt: skip
"""The columns of the table, in order."""


def columns_markdown() -> str:
    """The table of columns, as a page of the documentation."""
    lines = [
        "# The rows of a trace as a table",
        "",
        "One row per event that has a duration. `referee trace FILE --sql`, the exports and `referee.trace.table` hand",
        "out these columns. (This page is made from the code: `python -m referee.trace.table`.)",
        "",
        "| column | type | unit | may be null | meaning |",
        "|---|---|---|---|---|",
    ]
    for column in TABLE:
        null = "yes" if column.nullable else ""
        lines.append(f"| `{column.name}` | {column.dtype} | {column.unit} | {null} | {column.meaning} |")
    return "\n".join(lines) + "\n"


def to_arrow(trace: Trace) -> Any:
    """The rows as a ``pyarrow.Table``, with the trace's source and base time in its metadata."""
    pa = _load("pyarrow")
    arrays = {}
    for column in TABLE:
        values = column.take(trace)
        if isinstance(values, Texts):
            # Behind a null stands a valid code: some readers of the file look at it all the same.
            codes = pa.array(np.maximum(values.codes, 0), mask=values.codes == NONE)
            arrays[column.name] = pa.DictionaryArray.from_arrays(codes, pa.array(list(values.labels), pa.string()))
        else:
            arrays[column.name] = pa.array(values, mask=values == NONE if column.nullable else None)
    metadata = {"source": trace.source, "base_ns": str(trace.base_ns), "steps_from": trace.steps_from}
    return pa.table(arrays).replace_schema_metadata(metadata)


def to_polars(trace: Trace) -> Any:
    """The rows as a ``polars.DataFrame``."""
    return _load("polars").from_arrow(to_arrow(trace))


def to_pandas(trace: Trace) -> Any:
    """The rows as a ``pandas.DataFrame``."""
    _load("pandas")
    return to_arrow(trace).to_pandas()


def export(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write the rows to a file: ``.parquet``, or ``.arrow`` / ``.feather`` (Arrow's file format)."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in (".parquet", ".arrow", ".feather"):
        raise OptionError(f"{path}: the suffix says the format.", hint="Use .parquet, .arrow or .feather.")
    table = to_arrow(trace)
    partial = f"{os.fspath(path)}.part-{os.getpid()}"
    try:
        if suffix == ".parquet":
            _load("pyarrow.parquet").write_table(table, partial, compression="zstd")
        else:
            _load("pyarrow.feather").write_feather(table, partial, compression="zstd")
        os.replace(partial, path)
    except OSError as error:
        raise OptionError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a query gave: the names of its columns, and its rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


class QueryError(UserError, ValueError):
    """A query that the database refuses."""


def query(trace: Trace, sql: str) -> Answer:
    """The answer to an SQL query over the table ``rows`` (also called ``trace``), by duckdb.

    Files and networks cannot be reached from a query. Raises :class:`QueryError` with the database's own reason.
    """
    duckdb = _load("duckdb")
    connection = duckdb.connect(":memory:", config={"enable_external_access": "false"})
    try:
        table = to_arrow(trace)
        connection.register("rows", table)
        connection.register("trace", table)
        found = connection.execute(sql)
        columns = tuple(entry[0] for entry in found.description or ())
        return Answer(columns=columns, rows=tuple(tuple(row) for row in found.fetchall()))
    except duckdb.Error as error:
        reason = " ".join(str(error).split())
        names = ", ".join(column.name for column in TABLE)
        raise QueryError(f"The query cannot be answered: {reason}", hint=f"The columns are: {names}.") from error
    finally:
        connection.close()


def _load(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if package == "pandas":
            raise PackageMissing(
                "Handing out the rows as a pandas.DataFrame needs the package pandas, which is not installed.",
                hint="Install it with: pip install pandas",
            ) from error
        raise PackageMissing.named(package, need="Handing out the rows as a table", extra=EXTRA) from error


if __name__ == "__main__":
    import sys

    sys.stdout.write(columns_markdown())
