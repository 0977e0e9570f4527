"""What is left where the step raised? The findings until then and the provenance: nothing that was seen is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from referee.device.provenance import Source, collect
from referee.records.finding import Finding
from referee.records.precision import PrecisionReport, PrecisionVerdict

if TYPE_CHECKING:
    from referee.device.protocol import Device

REFUSED = frozenset(
    {
        "half-weights",
        "scaler-not-updated",
        "unscaled-twice",
        "scale-collapsed",
        "closure-with-scaler",
        "update-without-step",
    }
)
"""Wrong use on which torch, or the watch, raises: the cause of what came out where one of these was seen last."""


def unfinished(
    why: str, *, device: Device, name: str, findings: Sequence[Finding], target: Source | None = None
) -> PrecisionReport:
    """The report of a step that raised before it could be asked anything: it cannot be told, ``why`` says."""
    return PrecisionReport(
        name=name,
        verdict=PrecisionVerdict(
            dtype="cannot-tell",
            scaler=None,
            reasons=(),
            lines=(f"dtype: cannot tell, because {why.rstrip('.')}.",),
            undecided_because=why,
        ),
        autocast=None,
        gradients=None,
        activations=(),
        scaler=None,
        timing=(),
        pays_from=(),
        provenance=collect(
            device, dtype="not read", shapes=(), method={"clock": "none: the step raised"}, target=target
        ),
        findings=tuple(findings),
    )
