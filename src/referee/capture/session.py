"""What do all captures have in common? The files written so far, the provenance beside them, and the final record.

``capture`` (Referee calls the step), ``Capture`` (a loop of the user's own) and ``attach`` (a script) are three ways to
drive one session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from referee.capture.cost import calibrate_cost
from referee.capture.export import Place, write_cycle, write_memory
from referee.capture.findings import capture_cut, capture_replaced, cost_unknown, judge_capture
from referee.capture.job import find_job, measure_offset
from referee.capture.recorder import Recorded, Recorder, Window
from referee.capture.schedule import Cycle, Plan
from referee.capture.torch_window import TorchWindow, device_activity
from referee.device.protocol import Device, Settling
from referee.device.provenance import Source, collect
from referee.errors import CannotTell
from referee.records import schema
from referee.records.capture import Capture, CaptureFile, CaptureOptions, ProfilerCost
from referee.records.finding import Finding, Scalar
from referee.records.provenance import Provenance, TensorSpec
from referee.records.provenance_file import save_provenance


def collect_provenance(
    device: Device,
    *,
    plan: Plan,
    options: CaptureOptions,
    dtype: str,
    shapes: tuple[TensorSpec, ...],
    target: Source | None,
    switches: Mapping[str, Scalar] | None = None,
) -> Provenance:
    """The provenance of a capture: the machine's, and how the profiler was set."""
    method: dict[str, Scalar] = {
        "clock": "profiler",
        "settle": _settle_words(device),
        "plan": describe_plan(plan),
        "profiler_options": options.words(),
    }
    return collect(device, dtype=dtype, shapes=shapes, method=method, target=target, switches=switches)


def describe_plan(plan: Plan) -> str:
    """The plan in a line: ``skip 0, wait 1, warmup 1, active 3, repeat 1``."""
    record = plan.record
    if record.steps:
        listed = ", ".join(map(str, record.steps))
        return f"iterations {listed}, warmup {record.warmup}, active {record.active}"
    first = ", first wait skipped" if record.skip_first_wait else ""
    return (
        f"skip {record.skip}, wait {record.wait}, warmup {record.warmup}, active {record.active}, "
        f"repeat {record.repeat}{first}"
    )


def _settle_words(device: Device) -> str:
    return {
        Settling.SYNCHRONOUS: "nothing to await",
        Settling.ASYNCHRONOUS: "the device, before the first recorded iteration and after the last",
        Settling.LAZY: "the step's own outputs, materialised and awaited inside each iteration",
    }[device.settling]


class Session:
    """One capture under way. Writes each cycle when it ends; :meth:`close` gives the record of all of them."""

    def __init__(
        self,
        plan: Plan,
        *,
        device: Device,
        place: Place,
        options: CaptureOptions,
        provenance: Provenance,
        calibrate: bool = True,
        unstepped_hint: str = "In a loop of your own, call step() on the capture at the end of each iteration.",
    ) -> None:
        # The loop may change the directory before anything is written.
        place = replace(place, folder=place.folder.absolute())
        self._job = find_job()
        if self._job is not None:
            place = replace(place, rank=self._job.rank, world_size=self._job.world_size)
            provenance = replace(provenance, method={**provenance.method, **self._job.keys()})
        place.prepare()
        self.place, self.plan = place, plan
        self.files: list[CaptureFile] = []
        self.further = 0
        """Iterations that were run after the plan was complete, for memory alone."""
        self.in_second_pass = False
        self._device, self._options, self._provenance = device, options, provenance
        self._calibrate, self._unstepped_hint = calibrate, unstepped_hint
        self._step_ns: list[int] = []
        self._memory_path = ""
        self._replaced = 0
        self.recorder = Recorder(
            plan,
            open_window=lambda cycle: TorchWindow(cycle, device_name=device.name, options=options, looking=True),
            on_recorded=self._write,
            now_ns=device.now_ns,
            settle=self._settle_before,
        )

    def describe(self, *, dtype: str, shapes: tuple[TensorSpec, ...]) -> None:
        """State what is worked on, where it became known only after the capture had begun."""
        self._provenance = replace(self._provenance, dtype=dtype, shapes=shapes)

    def _settle_before(self) -> None:
        if self._device.settling is not Settling.SYNCHRONOUS:
            self._device.settle()

    def _write(self, recorded: Recorded, window: Window) -> None:
        assert isinstance(window, TorchWindow)
        first = not self.files

        def make_room() -> None:
            self._replaced = self.place.clear() if first else self._replaced

        file = write_cycle(window, recorded, place=self.place, provenance=self._provenance, before_placing=make_room)
        self.files.append(file)
        self._step_ns += recorded.step_ns
        # Should the process be killed, or end without a word, this is what the traces' reader is told.
        cut = capture_cut(self.recorder.iteration)
        schema.save(self._record(ended_by="the process ended", findings=(cut,)), self.record_path)

    def record_memory_alone(self, step: Callable[[], object]) -> None:
        """Take a second pass for memory, where shapes have made that of the first one wrong; writes its timeline.

        The iterations of one cycle are run once more, after the plan is complete.
        """
        if not (self.files and self._options.spoils_memory):
            return
        self.in_second_pass = True
        cycle = Cycle(warmup_from=0, first=1, end=1 + self.plan.record.active)
        window = TorchWindow(cycle, device_name=self._device.name, options=CaptureOptions(memory=True))
        window.start(0)
        try:
            try:
                for _ in range(cycle.end):
                    self._device.settle(step())
                    self.further += 1
                    window.step()
            finally:
                window.stop()
            path = write_memory(window, place=self.place, cycle=len(self.files) - 1)
        finally:
            window.release()
        self.in_second_pass = False
        if path is not None:
            self._memory_path = path
            self.files[-1] = replace(self.files[-1], beside=(*self.files[-1].beside, path))

    def close(
        self, *, unprofiled_ns: Sequence[float] = (), ended_by: str = "", findings: tuple[Finding, ...] = ()
    ) -> Capture:
        """End the run, write what is still open, and save the record as ``NAME.capture.json`` beside the traces.

        ``unprofiled_ns`` are the times of steps without the profiler.
        Where the session calibrates, the profiler's cost per operator is measured now, unless the run was cut short
        (``ended_by``): who interrupts a capture does not want to wait for a calibration.
        """
        self.recorder.finish()
        cost = None
        if self._calibrate and self.files and not ended_by:
            try:
                cost = calibrate_cost(options=self._options)
            except CannotTell as error:
                findings += (cost_unknown(error),)
        self._complete_provenance(median(unprofiled_ns) if unprofiled_ns else None, cost, ended_by=ended_by)
        record = self._record(unprofiled_ns=unprofiled_ns, ended_by=ended_by, findings=findings, cost=cost)
        if self.files:
            schema.save(record, self.record_path)
        return record

    def _record(
        self,
        *,
        ended_by: str,
        findings: tuple[Finding, ...],
        unprofiled_ns: Sequence[float] = (),
        cost: ProfilerCost | None = None,
    ) -> Capture:
        """What is known now, with ``findings`` before what is found in it."""
        judged = judge_capture(
            self.plan,
            iterations_run=self.recorder.iteration,
            files=self.files,
            activity=device_activity(self._device.name),
            options=self._options,
            ended_by=ended_by,
            memory_path=self._memory_path,
            unstepped_hint=self._unstepped_hint,
        )
        replaced = (capture_replaced(self._replaced, folder=self.place.folder),) if self._replaced else ()
        return Capture(
            name=self.place.name,
            plan=self.plan.record,
            iterations_run=self.recorder.iteration,
            files=tuple(self.files),
            step_ns=tuple(self._step_ns),
            unprofiled_step_ns=median(unprofiled_ns) if unprofiled_ns else None,
            provenance=self._provenance,
            findings=findings + judged + replaced,
            options=self._options,
            cost=cost,
            unprofiled_ns=tuple(unprofiled_ns),
        )

    def _complete_provenance(
        self, unprofiled_step_ns: float | None, cost: ProfilerCost | None, *, ended_by: str
    ) -> None:
        """Add what is known only at the end, also to the provenance that lies beside the traces already."""
        known: dict[str, Scalar] = {}
        offset = measure_offset(self._job) if self._job is not None and not ended_by else None
        if offset is not None:
            known |= offset.keys()
        if unprofiled_step_ns is not None:
            known["unprofiled_step_ns"] = unprofiled_step_ns
        if cost is not None:
            known["profiler_cost_ns"] = cost.per_row_ns
        if not known:
            return
        self._provenance = replace(self._provenance, method={**self._provenance.method, **known})
        for file in self.files:
            save_provenance(self._provenance, file.path)

    @property
    def record_path(self) -> Path:
        """Where the record of this capture is saved."""
        return self.place.folder / f"{self.place.stem}.capture.json"

    def saved_words(self) -> str:
        """What has been saved so far, in a sentence."""
        if not self.files:
            return "Nothing had been recorded yet."
        saved = [number for file in self.files for number in file.iterations]
        what = f"Iteration {saved[0]}" if len(saved) == 1 else f"{len(saved)} iterations ({saved[0]} to {saved[-1]})"
        return f"{what} had been recorded and saved: {self.files[-1].path}."
