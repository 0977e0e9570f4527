"""Which operators take the time, on the host and on the device, each moment counted once?"""

from __future__ import annotations

import numpy as np

from referee.records.tables import LaunchStats, OperatorRow
from referee.trace.columns import DEVICE_KINDS, NONE, CodeColumn, IntColumn, Kind, RowNumbers, Trace
from referee.trace.nesting import by_thread, depth, top_level


def operator_table(trace: Trace) -> tuple[OperatorRow, ...]:
    """All operators by name; those with most device time, then most own host time, first."""
    rows = trace.rows
    ops = rows.of(Kind.OPERATOR)
    if not ops.size:
        return ()
    code, names = rows.name[ops], len(trace.names)
    count = np.bincount(code, minlength=names)
    own_ns, total_ns = np.zeros(names, dtype=np.int64), np.zeros(names, dtype=np.int64)
    outermost = _outermost_of_name(trace, ops)
    np.add.at(total_ns, code[outermost], rows.end_ns[ops[outermost]] - rows.start_ns[ops[outermost]])
    del outermost
    parent = _parents(trace, ops)
    np.add.at(own_ns, code, _own_time(trace, ops, parent))
    device_self_ns, device_total_ns = _device_time(trace, ops, parent, code)
    found = np.flatnonzero(count).tolist()
    order = sorted(found, key=lambda i: (-int(device_self_ns[i]), -int(own_ns[i]), i))
    return tuple(
        OperatorRow(
            name=trace.names[i],
            count=int(count[i]),
            host_self_ns=int(own_ns[i]),
            host_total_ns=int(total_ns[i]),
            device_self_ns=int(device_self_ns[i]),
            device_total_ns=int(device_total_ns[i]),
        )
        for i in order
    )


def _own_time(trace: Trace, ops: RowNumbers, parent: RowNumbers) -> IntColumn:
    """The time of each operator without its children's."""
    rows = trace.rows
    self_ns = rows.end_ns[ops] - rows.start_ns[ops]
    nested = np.flatnonzero(parent != NONE)
    child, outer = ops[nested], ops[parent[nested]]
    # A child that outlasts its parent (a broken record) takes from it at most what lies inside.
    inside_ns = np.minimum(rows.end_ns[child], rows.end_ns[outer]) - rows.start_ns[child]
    np.subtract.at(self_ns, parent[nested], inside_ns)
    np.maximum(self_ns, 0, out=self_ns)
    return self_ns


def _parents(trace: Trace, ops: RowNumbers) -> RowNumbers:
    """For each operator the position of the one around it on its thread, or :data:`NONE`.

    Around a row of depth d is the last row of depth d - 1 before it, where rows nest.
    """
    rows = trace.rows
    deep = depth(rows.thread[ops], rows.start_ns[ops], rows.end_ns[ops])
    order = by_thread(rows.thread[ops])
    deep = deep[order]
    parent = np.full(ops.size, NONE, dtype=np.int64)
    above = np.flatnonzero(deep == 0)
    for level in range(1, int(deep.max(initial=0)) + 1):
        here = np.flatnonzero(deep == level)
        before = np.searchsorted(above, here) - 1
        around = order[above[np.maximum(before, 0)]] if above.size else np.zeros(here.size, dtype=np.int64)
        mine = order[here]
        holds = (before >= 0) & (rows.thread[ops[around]] == rows.thread[ops[mine]])
        holds &= rows.end_ns[ops[around]] > rows.start_ns[ops[mine]]
        parent[mine] = np.where(holds, around, NONE)
        above = here
    return parent


def _outermost_of_name(trace: Trace, ops: RowNumbers) -> IntColumn:
    """Positions of the operators that are in no other of their name: names and threads as one group each."""
    rows = trace.rows
    width = max(len(trace.threads), 1)
    if len(trace.names) * width < 1 << 31:
        group = rows.name[ops] * np.int32(width) + rows.thread[ops]
    else:
        wide = rows.name[ops].astype(np.int64) * width + rows.thread[ops]
        group = np.unique(wide, return_inverse=True)[1].astype(np.int32)
    return np.flatnonzero(top_level(group, rows.start_ns[ops], rows.end_ns[ops]))


def _device_time(trace: Trace, ops: RowNumbers, parent: RowNumbers, code: CodeColumn) -> tuple[IntColumn, IntColumn]:
    """Device time by name: of the rows it launched itself, and of all rows launched inside it."""
    rows = trace.rows
    device_rows = rows.of(*DEVICE_KINDS)
    launch = trace.links.launch_of[device_rows]
    operator = np.where(launch == NONE, NONE, trace.links.operator_of[np.maximum(launch, 0)])
    known = operator != NONE
    duration_ns = (rows.end_ns[device_rows] - rows.start_ns[device_rows])[known]
    position_of = np.full(len(rows), NONE, dtype=np.int32 if len(rows) < 1 << 31 else np.int64)
    position_of[ops] = np.arange(ops.size)
    here, names = position_of[operator[known]], len(trace.names)
    del position_of
    own_ns, total_ns = np.zeros(names, dtype=np.int64), np.zeros(names, dtype=np.int64)
    np.add.at(own_ns, code[here], duration_ns)
    seen: list[IntColumn] = []
    row = np.arange(here.size)
    while here.size:
        seen.append(row * names + code[here])
        above = parent[here]
        row, here = row[above != NONE], above[above != NONE]
    pairs = np.concatenate(seen) if seen else np.zeros(0, dtype=np.int64)
    seen.clear()
    pairs.sort()
    # np.unique would put them into a hash table, which takes twenty times as long.
    pairs = pairs[np.append(True, pairs[1:] != pairs[:-1])] if pairs.size else pairs
    np.add.at(total_ns, pairs % names, duration_ns[pairs // names])
    return own_ns, total_ns


def launch_stats(trace: Trace) -> LaunchStats | None:
    """What launching costs; ``None`` where no launch has a device row."""
    rows = trace.rows
    launches = np.flatnonzero(trace.links.is_launch)
    kernels = rows.of(Kind.KERNEL)
    linked = int((trace.links.launch_of[rows.of(*DEVICE_KINDS)] != NONE).sum())
    if not launches.size or not linked:
        return None
    call_ns = rows.end_ns[launches] - rows.start_ns[launches]
    kernel_ns = rows.end_ns[kernels] - rows.start_ns[kernels]
    median_ns = float(np.median(call_ns))
    short = kernel_ns < median_ns
    return LaunchStats(
        launches=int(launches.size),
        median_call_ns=median_ns,
        p95_call_ns=float(np.quantile(call_ns, 0.95)),
        total_call_ns=int(call_ns.sum()),
        kernels_per_launch=linked / int(launches.size),
        short_kernels=int(short.sum()),
        short_kernels_ns=int(kernel_ns[short].sum()),
        kernels=int(kernels.size),
    )
