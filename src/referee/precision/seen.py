"""What was seen of a loop's mixed precision? The record that a watch fills: steps, skips, scales, findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from referee.precision.place import user_line
from referee.records.finding import Finding, Scalar, Severity


@dataclass
class Held:
    """What is known of the gradients of one set of parameters within the present step."""

    scale: float = 1.0
    """The factor that the gradients still carry."""
    unscaled: int = 0
    """How often they were divided by the scale since the last backward."""
    backwards: int = 0
    stale: bool = False
    """They were there when the scaler was updated, and carry the scale of before."""
    unguarded: bool = False
    """They come of an fp16 backward whose loss nobody is seen to have scaled."""


@dataclass
class ScalerLog:
    """The steps of one scaler."""

    steps: int = 0
    skipped: int = 0
    scales: list[float] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)
    """Optimizers, by ``id``, that it stepped since its last update."""
    line: str = ""
    """Where it stepped last."""
    skip_line: str = ""
    """Where it skipped first."""


@dataclass
class Seen:
    """What was seen so far."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, Finding] = field(default_factory=dict)
    scalers: dict[int, ScalerLog] = field(default_factory=dict)
    steps: int = 0
    """Optimizer steps that were really made."""
    regions: dict[str, str] = field(default_factory=dict)
    """Devices for which autocast was entered, or asked for in vain, each with the first line."""
    announce: Callable[[Finding], None] = lambda _: None
    latest: Finding | None = None
    """The finding that came up last, whether it had come up before or not."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings in the order in which they first came up, with how often each did."""
        return tuple(
            replace(found, evidence={**found.evidence, "times": self.counts[key]}) for key, found in self.first.items()
        )

    @property
    def skipped(self) -> int:
        """Steps that scalers skipped."""
        return sum(log.skipped for log in self.scalers.values())

    @property
    def scaler_steps(self) -> int:
        """Steps that went through a scaler, skipped ones included."""
        return sum(log.steps for log in self.scalers.values())

    def note(self, finding: Finding, *, key: str = "") -> None:
        """Count a finding; only the first of its kind is kept and announced."""
        key = key or finding.code
        self.latest = finding
        self.counts[key] = self.counts.get(key, 0) + 1
        if key not in self.first:
            self.first[key] = finding
            self.announce(finding)

    def tell(
        self,
        code: str,
        message: str,
        *,
        hint: str,
        severity: Severity = "warning",
        line: str | None = None,
        also: Mapping[str, Scalar] | None = None,
        **evidence: Scalar,
    ) -> None:
        """Note a finding with the user's line: the present one unless another is given."""
        line = user_line() if line is None else line
        place = f" ({line})" if line else ""
        self.note(
            Finding(
                code=code,
                severity=severity,
                message=f"{message}{place}.",
                evidence={"line": line, **evidence, **(also or {})},
                hint=hint,
            )
        )
