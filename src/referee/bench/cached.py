"""Does a call compute anything? Not where it returns a tensor without an operator and without writing to it."""

from __future__ import annotations

from referee.bench.plan import Step
from referee.device.protocol import Device, SeesResults
from referee.records.finding import Finding, Severity


def check_computed(step: Step, seen: object, *, device: Device, severity: Severity) -> tuple[Finding, ...]:
    """What is timed where nothing is computed: the handing over of a result that was there before.

    ``seen`` is what was observed of the step; nothing is said where its operators were not watched. Calls ``step``
    three times where none was seen; what it raises passes through.
    """
    watched = getattr(seen, "basis", "") == "operators" and bool(getattr(seen, "outputs", ()))
    if not watched or getattr(seen, "ops", True):
        return ()
    if isinstance(device, SeesResults) and not device.hands_out_kept(step):
        return ()
    return (
        Finding(
            code="cached-result",
            severity=severity,
            message="A call returns a tensor without running one operator, and does not write to it: what is timed is "
            "the handing over of a result that is there already.",
            evidence={"operators": 0},
            hint="Let the step itself compute what it returns, and see that it is not answered from a cache.",
        ),
    )
