"""What would help, and how much could it recover? Remedies named per cause, those that could recover most first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from referee.analysis.copy_remedies import copy_remedies
from referee.analysis.host_remedies import host_remedies
from referee.analysis.proposal import propose
from referee.analysis.regime import NAMES_FRAC, decide
from referee.analysis.study import Study
from referee.graph.calls import named
from referee.records.trace_report import Loss
from referee.records.verdict import Remedy
from referee.trace.columns import Kind
from referee.trace.intervals import overlap_ns, union

_OPTIMIZER = re.compile(r"^Optimizer\.step")

WORTH_FRAC = 0.01
"""A remedy that could recover less of the window than this is not named."""


def remedies(study: Study) -> tuple[Remedy, ...]:
    """Ranked by the most they could recover per step (without steps: over the window); unpriced ones last."""
    if study.totals.window_ns <= 0 or not study.totals.kernels:
        return ()
    steps = max(1, sum(1 for step in study.steps if step.kernels))
    found = [remedy for name in _SOURCES for remedy in name(study, steps)]
    worth_ns = WORTH_FRAC * study.totals.window_ns / steps
    kept = [remedy for remedy in found if remedy.high_ns is None or remedy.high_ns >= worth_ns]
    return tuple(sorted(kept, key=lambda remedy: -1.0 if remedy.high_ns is None else -remedy.high_ns))


def _priced(loss: Loss) -> tuple[float, float]:
    return float(loss.low_ns or 0), float(loss.high_ns or 0)


def _fewer_launches(study: Study, steps: int) -> Iterator[Remedy]:
    loss = study.losses.per_op_overhead
    low_ns, high_ns = _priced(loss)
    if not high_ns:
        return
    yield propose(
        "Record the step once and replay it as a graph",
        "per-op CPU overhead",
        'torch.compile(model, mode="reduce-overhead"), or torch.cuda.graph with static inputs',
        low_ns=low_ns,
        high_ns=high_ns,
        steps=steps,
        basis="idle while the host issued operators, less the cost of replay",
    )
    # Where the device is the limit, and where the loss is not worth naming, a larger batch only takes longer.
    if high_ns >= WORTH_FRAC * study.totals.window_ns and not _device_is_limit(study):
        yield propose(
            "Give the device more work per operator: a larger batch",
            "per-op CPU overhead",
            "referee sweep TARGET --values 8,16,32,64,128",
            high_ns=None,
            low_ns=None,
            steps=steps,
            basis="the same operators are issued whatever the batch; only the sweep says where that ends",
        )
    optimizer_ns = _optimizer_idle_ns(study)
    if optimizer_ns:
        yield propose(
            "Update all parameters in one call",
            "per-op CPU overhead of the optimizer",
            "torch.optim.AdamW(params, fused=True), or foreach=True where there is no fused form",
            high_ns=optimizer_ns,
            steps=steps,
            basis="idle while the optimizer's own operators were issued",
        )


def _optimizer_idle_ns(study: Study) -> int:
    """Per-op idle inside the optimizer's step frames."""
    rows = study.trace.rows
    frames = rows.of(Kind.ANNOTATION, Kind.OPERATOR)
    frames = frames[named(study.trace, frames, _OPTIMIZER)]
    inside = union(rows.start_ns[frames], rows.end_ns[frames])
    return sum(
        int(np.minimum(g.per_op_ns, overlap_ns(g.start_ns, g.host_end_ns, within=inside)).sum()) for g in study.gaps
    )


def _faster_loader(study: Study, steps: int) -> Iterator[Remedy]:
    loader_ns = study.idle.host_starved.loader_ns + study.behind_waits["loader"]
    if loader_ns:
        yield propose(
            "Load the next batch while this one is computed",
            "the data loader",
            "DataLoader(…, num_workers=4, persistent_workers=True, prefetch_factor=4, pin_memory=True)",
            high_ns=loader_ns,
            steps=steps,
            basis="idle while the loop stood in the data loader, behind waits as well",
        )


def _hidden_collectives(study: Study, steps: int) -> Iterator[Remedy]:
    if study.timeline.exposed_communication_ns:
        yield propose(
            "Hide the collectives behind computation, or send less",
            "exposed communication",
            "DistributedDataParallel(bucket_cap_mb=…, gradient_as_bucket_view=True), no_sync() while accumulating, "
            "a bf16 compression hook; compare the ranks first: a late rank makes all others wait",
            high_ns=study.timeline.exposed_communication_ns,
            steps=steps,
            basis="collectives that no computation hides",
        )


def _devices_at_once(study: Study, steps: int) -> Iterator[Remedy]:
    waited_ns = sum(int(g.elsewhere_ns.sum()) for g in study.gaps)
    if waited_ns:
        yield propose(
            "Let the devices work at the same time",
            "devices that wait for one another",
            "split the batch into micro-batches and pipeline them (torch.distributed.pipelining), or give each device "
            "a share of the batch (DistributedDataParallel)",
            high_ns=waited_ns,
            steps=steps,
            basis="idle of one device until another one's row had ended, added up over devices",
        )


def _device_is_limit(study: Study) -> bool:
    judged = study.judged
    regime = decide(judged.trace, judged.totals, judged.shares).regime
    return regime == "compute-bound" or judged.shares.busy_frac >= 1 - NAMES_FRAC


def _fused(study: Study, steps: int) -> Iterator[Remedy]:
    """Traffic that fusion saves shortens the step for certain only where the device is the limit."""
    low_ns, high_ns = _priced(study.losses.memory_traffic)
    if high_ns:
        yield propose(
            "Fuse neighbouring operators, so that less memory is written and read again",
            "memory traffic between operators",
            "torch.compile(model)",
            low_ns=low_ns if _device_is_limit(study) else 0,
            high_ns=high_ns,
            steps=steps,
            basis="adjacent pointwise, norm and reduce operators whose shapes fit, at the memory's peak rate",
        )


def _less_device_work(study: Study, steps: int) -> Iterator[Remedy]:
    if _device_is_limit(study):
        yield propose(
            "Give the device less to do: lower precision and fused operators",
            "device time",
            'torch.set_float32_matmul_precision("high"), torch.autocast(device, torch.bfloat16), torch.compile(model)',
            high_ns=None,
            low_ns=None,
            steps=steps,
            basis="the device is the limit; only trying says what its kernels gain",
        )


_SOURCES: tuple[Callable[[Study, int], Iterator[Remedy]], ...] = (
    _fewer_launches,
    host_remedies,
    _faster_loader,
    copy_remedies,
    _hidden_collectives,
    _devices_at_once,
    _fused,
    _less_device_work,
)
