"""How long did work wait between being handed over and starting?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from referee.graph.work import DEFAULT_LATENCY_NS, Work
from referee.records.trace_report import QueueDelay


def queue_delay(works: Sequence[Work]) -> QueueDelay:
    """Row start minus submission over the first rows of launches that the file holds; signed.

    Submission is the earlier of the launch's end and the row's start, so a row that starts before its launch returned
    has waited 0. By itself the delay separates no regimes: a queue may be long because the host is fast or because
    the device is slow, and short because the host is slow or because it waits after each launch.
    """
    chosen = [work.first & work.linked for work in works]
    delays = [work.start_ns[c] - work.submission_ns[c] for work, c in zip(works, chosen, strict=True)]
    delay_ns = np.concatenate(delays) if delays else np.zeros(0, dtype=np.int64)
    # With several devices the one that was launched upon most often speaks for the latency.
    busiest = max(works, key=lambda work: int((work.first & work.linked).sum()), default=None)
    return QueueDelay(
        median_ns=float(np.median(delay_ns)) if delay_ns.size else None,
        p95_ns=float(np.quantile(delay_ns, 0.95)) if delay_ns.size else None,
        latency_ns=float(busiest.latency_ns if busiest is not None else DEFAULT_LATENCY_NS),
        rows=int(delay_ns.size),
        latency_assumed=busiest is None or busiest.shown_latency_ns is None,
    )
