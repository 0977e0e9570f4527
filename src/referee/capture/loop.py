"""What does the profiler see of my own loop? A context manager for a loop that Referee does not run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from referee.capture.export import Place
from referee.capture.profiler import DEFAULT_PLAN, check_name
from referee.capture.schedule import Plan
from referee.capture.session import Session, collect_provenance
from referee.device.protocol import Device
from referee.records import capture as records
from referee.records.provenance import TensorSpec

Item = TypeVar("Item")


class Capture:
    """Record the iterations of a loop along a plan::

        with Capture(plan=Plan.of(wait=10, warmup=2, active=3), out_dir="traces", name="train") as capture:
            for batch in loader:
                train(batch)
                capture.step()

    or, so that no iteration can be forgotten, ``for batch in capture.over(loader)``. Whatever ends the loop, ``break``
    and exceptions included, complete iterations are saved and the unfinished one is marked as such. Afterwards
    ``capture.result`` is the record, with findings; if nothing was recorded a warning says why. On a lazy device the
    loop must end each iteration's graph itself (``mark_step``), as it has to without a profiler. An earlier capture of
    the same name in ``out_dir`` is replaced as a whole, which a finding says.
    """

    def __init__(
        self,
        *,
        out_dir: str | os.PathLike[str],
        name: str,
        plan: Plan = DEFAULT_PLAN,
        device: Device | str = "cpu",
        dtype: str = "not stated",
        shapes: tuple[TensorSpec, ...] = (),
        options: records.CaptureOptions = records.CaptureOptions(),  # noqa: B008  # frozen
        calibrate: bool = True,
    ) -> None:
        from referee.device.registry import open_device

        opened = open_device(device) if isinstance(device, str) else device
        self.result: records.Capture | None = None
        """The record of the capture, once the loop has ended."""
        self._session = Session(
            plan,
            device=opened,
            place=Place(folder=Path(out_dir), name=check_name(name)),
            options=options,
            calibrate=calibrate,
            provenance=collect_provenance(opened, plan=plan, options=options, dtype=dtype, shapes=shapes, target=None),
        )
        # The wait phase must cost nothing: the caller's step() is the recorder's own.
        self.step = self._session.recorder.step
        """The iteration is complete, and the next begins."""

    def over(self, items: Iterable[Item]) -> Iterator[Item]:
        """``items`` one by one; asking for the next one ends an iteration."""
        for item in items:
            yield item
            self.step()

    def __enter__(self) -> Self:
        self._session.recorder.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended_by = "" if kind is None else f"{kind.__name__} was raised"
        self.result = self._session.close(ended_by=ended_by)
        if error is not None:
            error.add_note(self._session.saved_words())
            return
        for finding in self.result.findings:
            if finding.severity != "info":
                warnings.warn(f"{finding.message} {finding.hint}", stacklevel=2)
