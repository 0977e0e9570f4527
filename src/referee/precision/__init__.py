"""Which precision for this step? Autocast audit, gradient ranges, scaler, wrong use, timing, and a verdict.

``referee precision`` asks everything of a step (:func:`referee.precision.advise.advise`). Around a loop of your own::

    from referee.precision import watch

    with watch() as seen:
        train()
    for finding in seen.findings:
        print(finding.message, finding.hint)

Importing this package loads no torch.
"""

from referee.precision.misuse import ScaleCollapsed
from referee.precision.scaler import Policy, Trajectory, simulate
from referee.precision.seen import Seen
from referee.precision.watch import watch

__all__ = ["Policy", "ScaleCollapsed", "Seen", "Trajectory", "simulate", "watch"]
