"""What would help where the host is late? By the calls that wait and allocate, and by what holds the host."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from referee.analysis.host_work import host_work_ns, of_pause, who_computes
from referee.analysis.idle import sum_idle
from referee.analysis.loss_evidence import MOSTLY_FRAC, recurs
from referee.analysis.owners import pause_owners
from referee.analysis.proposal import propose
from referee.analysis.study import Study
from referee.graph.calls import ALLOCATIONS, FREES, WAITS, calls_named, named
from referee.graph.threads import launching_threads
from referee.records.tables import SyncSite
from referee.records.verdict import Remedy
from referee.trace.columns import Kind

_PINNED = re.compile(r"hostalloc|allochost|mallochost|hostmalloc|freehost|hostfree|host(un)?register", re.IGNORECASE)
"""Calls that lock or unlock host memory, among those that allocate."""

_SHARE_OF_WAITS = 0.1
"""A kind of wait with this share of the idle time behind waits is worth words."""

_READS = (
    "hoist .item(), .cpu(), .tolist(), print(tensor) and boolean tests of tensors out of the loop; log every N steps"
)
_SHAPES = (
    "replace x[mask] by torch.where, and give repeat_interleave its output_size: a shape that depends on values waits"
)
_KINDS_OF_WAIT: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"item|local_scalar_dense|is_nonzero|aten::equal|allclose"), _READS),
    (re.compile(r"nonzero|masked_select|unique|aten::index|repeat_interleave|bincount|aten::where"), _SHAPES),
    (
        re.compile(r"copy|aten::to$|memcpy", re.IGNORECASE),
        "copy with non_blocking=True from or to pinned memory, and read results a step later",
    ),
    (FREES, "leave torch.cuda.empty_cache() and changing shapes out of the loop: giving memory back waits"),
)
"""By the operator that waits, or by the call where no operator does: what to change."""
_EXPLICIT = (
    "take torch.cuda.synchronize(), event.synchronize() and dist.barrier() out of the loop; to time a part, record "
    "torch.cuda.Event pairs and read them behind the loop"
)


def host_remedies(study: Study, steps: int) -> Iterator[Remedy]:
    """Remedies for waits, allocations, first-time costs, pauses, and for what the host computes."""
    yield from _no_waits(study, steps)
    yield from _warm_first(study, steps)
    yield from _no_allocations(study, steps)
    yield from _no_host_work(study, steps)
    yield from _find_the_pause(study, steps)


def _no_waits(study: Study, steps: int) -> Iterator[Remedy]:
    waited_ns = sum_idle(study.charged).synchronised_ns
    if not waited_ns:
        return
    hows = _how_to_stop(study.sync_sites)
    yield propose(
        "Stop synchronising inside the step"
        if hows[0] == _EXPLICIT
        else "Stop asking the device for values inside the step",
        "waits of the host",
        "; ".join(hows),
        high_ns=waited_ns,
        steps=steps,
        basis="idle behind calls that wait for the device, and later for want of the lead that they took",
    )


def _how_to_stop(sites: tuple[SyncSite, ...]) -> list[str]:
    """What to change, for the kinds of waits with most idle time behind them; for all of them where none is known."""
    idle_ns: Counter[str] = Counter()
    for site in sites:
        idle_ns[_kind_of_wait(site)] += site.idle_ns
    total_ns = idle_ns.total()
    hows = [how for how, ns in idle_ns.most_common() if how and ns and ns >= _SHARE_OF_WAITS * total_ns]
    return hows or [_READS, _SHAPES]


def how_not_to_ask(operator: str) -> str:
    """What to change where this operator asks the device for a value; empty where nothing is known of it."""
    return next((how for pattern, how in _KINDS_OF_WAIT if pattern.search(operator)), "")


def _kind_of_wait(site: SyncSite) -> str:
    """The words for one place; empty where nothing about it is known."""
    who = site.owner.operator
    if who is None and WAITS.search(site.call):
        return _EXPLICIT
    return how_not_to_ask(who or site.call)


def _warm_first(study: Study, steps: int) -> Iterator[Remedy]:
    starved = study.idle.host_starved
    basis = "idle behind stretches that look like loading, compilation or autotuning (a heuristic)"
    if starved.one_off_ns and recurs(study):
        yield propose(
            "Find what is compiled or loaded anew in each step",
            "first-time costs that recur",
            "TORCH_LOGS=recompiles,graph_breaks python …; pad inputs to fixed shapes, mark_dynamic(tensor, 0), keep "
            "counters and flags out of what is guarded",
            high_ns=starved.one_off_ns,
            steps=steps,
            basis=basis,
        )
    elif starved.one_off_ns:
        yield propose(
            "Pay first-time costs before the loop, and measure after them",
            "first-time costs",
            "run a few steps before the profiler's active phase; CUDA_MODULE_LOADING=EAGER; "
            "keep the compile cache (TORCHINDUCTOR_CACHE_DIR)",
            high_ns=starved.one_off_ns,
            steps=steps,
            basis=basis,
        )


def _no_allocations(study: Study, steps: int) -> Iterator[Remedy]:
    allocator_ns = study.idle.host_starved.allocator_ns
    if not allocator_ns:
        return
    pinned = _pins_memory(study)
    yield propose(
        "Pin host memory once, and not in the loop" if pinned else "Keep the driver out of the loop's allocations",
        "allocator",
        "let the loader pin (DataLoader(…, pin_memory=True)), or copy into a pinned buffer made before the loop; "
        "tensor.pin_memory() in the loop asks the driver whenever no pinned block of that size is free"
        if pinned
        else "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; keep shapes fixed; reuse buffers with out=; "
        "do not call empty_cache()",
        high_ns=allocator_ns,
        steps=steps,
        basis="idle behind allocation calls that reached the driver",
    )


def _pins_memory(study: Study) -> bool:
    """Whether most of the time in allocation calls goes to host memory that is locked or unlocked."""
    trace, rows = study.trace, study.trace.rows
    calls = calls_named(trace, ALLOCATIONS)
    calls = calls[launching_threads(trace)[rows.thread[calls]]]
    took_ns = rows.end_ns[calls] - rows.start_ns[calls]
    return bool(took_ns[named(trace, calls, _PINNED)].sum() > MOSTLY_FRAC * took_ns.sum())


def _no_host_work(study: Study, steps: int) -> Iterator[Remedy]:
    computed_ns = host_work_ns(study.trace, study.gaps)
    if computed_ns:
        names = [name for name, _ in who_computes(study.trace, study.gaps)][:3]
        yield propose(
            "Let the device compute what the host computes now",
            "computation on the host",
            f"look where the tensors of {', '.join(names)} live, and make them on the device (device=…); what has to "
            "stay on the host, an offloaded optimizer say, runs in a thread of its own beside the device's work",
            high_ns=computed_ns,
            steps=steps,
            basis="idle during operators of 50 µs and more that call nothing and launch nothing",
        )


def _find_the_pause(study: Study, steps: int) -> Iterator[Remedy]:
    computed_ns = sum(int(of_pause(study.trace, g).sum()) for g in study.gaps)
    pause_ns = study.idle.host_starved.pause_ns - computed_ns
    if not pause_ns:
        return
    owners = pause_owners(study.trace, study.gaps)
    holder = owners[0][0] if owners and owners[0][1] >= MOSTLY_FRAC * pause_ns else None
    if holder is not None:
        name, how = (
            "Take what holds the host there off the path of the launches",
            f"{holder} holds the host: do it in the loader's workers, in another thread, on the device, or less often",
        )
    else:
        stacks = study.trace.rows.of(Kind.PYTHON).size
        name, how = (
            "Find what the host does when it does nothing that is recorded",
            "no frame covers them: look for garbage collection, other processes on these cores, and locks"
            if stacks
            else "record with with_stack=True, and look for files, locks, logging and garbage collection",
        )
    yield propose(
        name,
        "pauses of the host",
        how,
        high_ns=pause_ns,
        steps=steps,
        basis="stretches of at least 2 ms without a host row",
    )
