"""Is mixed precision used as it is meant to be? A watch over a user's own loop: what a scaler hides, what is misused.

    with watch() as seen:
        for batch in loader: ...
    for finding in seen.findings: ...

While entered, the calls in question (``GradScaler``, gradient clipping, backward, autocast, optimizers, schedulers) are
noted, each with the user's line, and go through unchanged. One kind of misuse is one finding, however often it occurs;
the count stands in its evidence. A scale that has fallen to 0 is announced before the next step could write NaN into
the weights: by then :class:`ScaleCollapsed` is raised unless ``on_collapse`` says otherwise.

Reading the scale after each update waits for the device; on a GPU that costs one more wait per step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from referee.precision.intercept import Intercepts
from referee.precision.misuse import OnCollapse, ScaleCollapsed, Watcher
from referee.precision.seen import Seen
from referee.records.finding import Finding

__all__ = ["OnCollapse", "ScaleCollapsed", "Seen", "watch"]


@contextmanager
def watch(*, on_collapse: OnCollapse = "raise", announce: Callable[[Finding], None] = lambda _: None) -> Iterator[Seen]:
    """Watch whatever runs inside. ``announce`` is called with each finding when it first comes up."""
    seen = Seen(announce=announce)
    watcher = Watcher(seen, on_collapse=on_collapse)
    with Intercepts() as intercepts:
        watcher.install(intercepts)
        try:
            yield seen
        finally:
            watcher.close()
