"""Every record by a name: what the renderers and the composing are tried on."""

from __future__ import annotations

from dataclasses import replace

from referee.records.capture import Capture, CaptureFile, CaptureOptions, Integrity, ProfilerCost, SchedulePlan
from referee.records.check import Check
from referee.records.environment import DeviceEntry, Environment
from referee.records.finding import Finding
from referee.records.lab import LabReport, LabRow
from referee.records.profile import Profile
from referee.records.verdict import Evidence, Verdict

from .anatomy_samples import ANATOMY, DIFF, SURVEY
from .live_samples import (
    ASYNCHRONOUS,
    COMPARISON,
    CPU,
    DISTURBED_MEASUREMENT,
    GPU_PROVENANCE,
    MAX_SWEEP,
    MEASUREMENT,
    NO_FIT,
    NO_HEADLINE,
    NO_SHAPES,
    NOT_COMPARABLE,
    NOT_VERIFIABLE,
    NULL_KNEE,
    ONE_BATCH,
    PROVENANCE,
    SHAPES,
    SWEEP,
    SWEEP_GRID,
    THREE_WAY,
    VERIFICATION,
)
from .precision_samples import BARE_PRECISION, PRECISION
from .remedy_samples import WHAT_IF, remedy_report
from .trace_samples import EMPTY_TRACE, MANY_FINDINGS, REMEDIES, TRACE, TRACES, VERDICT

CAPTURE = Capture(
    name="examples/transformer.py:train_step",
    plan=SchedulePlan(skip=2, wait=1, warmup=2, active=3, repeat=1),
    iterations_run=8,
    files=(CaptureFile(path="out/train_step.0.pt.trace.json.gz", iterations=(5, 6, 7), size_bytes=1_812_004),),
    step_ns=(13_100_000, 12_900_000, 13_020_000),
    unprofiled_step_ns=12_412_330.0,
    provenance=PROVENANCE,
)
NO_CAPTURE = replace(
    CAPTURE,
    files=(),
    step_ns=(),
    unprofiled_step_ns=None,
    findings=(
        Finding(code="nothing-recorded", severity="fatal", message="The schedule needs 6 iterations; 4 were run."),
    ),
)

CPU_VERDICT = Verdict(
    regime="overhead-bound",
    evidence=(
        Evidence(
            name="null experiment",
            value=3.48,
            unit="batch_size",
            threshold="measured at 1, below the knee",
            so="the part that does not grow with the batch is the larger one",
        ),
    ),
    would_change="a batch above the knee",
)
CHECK = Check(
    name="examples/transformer.py:train_step",
    measurement=MEASUREMENT,
    sweep=SWEEP,
    capture=CAPTURE,
    trace=replace(EMPTY_TRACE, provenance=PROVENANCE),
    verdict=CPU_VERDICT,
    remedies=REMEDIES[1:],
    provenance=PROVENANCE,
    findings=(ONE_BATCH,),
)
GPU_CHECK = replace(
    CHECK,
    measurement=ASYNCHRONOUS,
    sweep=MAX_SWEEP,
    trace=TRACE,
    verdict=VERDICT,
    remedies=REMEDIES,
    provenance=GPU_PROVENANCE,
)
BARE_CHECK = replace(CHECK, sweep=None, capture=None, trace=None, remedies=(), findings=())

ENVIRONMENT = Environment(
    chip=PROVENANCE.chip,
    software=PROVENANCE.software,
    switches=PROVENANCE.switches,
    machine_state=PROVENANCE.machine_state,
    devices=(
        DeviceEntry(name="cpu", available=True, detail=CPU["model"], settling="nothing to wait for"),
        DeviceEntry(
            name="cuda",
            available=False,
            detail="this torch is built without CUDA",
            settling="synchronises every device the outputs live on",
        ),
        DeviceEntry(name="lazy", available=True, detail="TorchScript backend", settling="materialises, then waits"),
    ),
    extras={"torch": "2.13.0+cpu", "nvidia-ml-py": None},
)

PROFILE = Profile(name="model.py:forward", capture=CAPTURE, reports=(TRACE,), provenance=PROVENANCE)
TWO_FILES = replace(
    PROFILE,
    capture=replace(
        CAPTURE,
        plan=replace(CAPTURE.plan, steps=(10, 500), skip_first_wait=True),
        files=tuple(
            replace(
                CAPTURE.files[0],
                path=f"out/cycle{k}.json.gz",
                integrity=Integrity(
                    events=81_204,
                    ops=9_412,
                    steps_found=(5, 6, 7),
                    device_rows=0,
                    launches=0,
                    launches_unmatched=0,
                    device_rows_unlinked=0,
                    lost=None if k else 0,
                ),
                beside=("out/stacks.txt",),
            )
            for k in range(2)
        ),
        options=CaptureOptions(shapes=True, stacks=True),
        cost=ProfilerCost(
            per_row_ns=812.0, low_ns=790.0, high_ns=840.0, chain=200, rounds=9, options=CaptureOptions(shapes=True)
        ),
    ),
    reports=(TRACE, EMPTY_TRACE),
)

LAB_ROW = LabRow(
    id="E7",
    claimed="A launch costs at least 2 µs.",
    teaches="A launch has a price.",
    measures="median launch call",
    measured=5_140.0,
    low=4_990.0,
    high=7_910.0,
    outcome="holds",
    unit="ns",
    claimed_low=2_000.0,
    basis="recorded",
    sources=("a.json.gz", "b.json.gz"),
)
LAB = LabReport(
    rows=(
        LAB_ROW,
        replace(LAB_ROW, id="E3", outcome="differs", why="5.14 µs is below the 6.00 µs.", claimed_low=9_000.0),
        replace(LAB_ROW, id="D7", outcome="needs-device", measured=None, low=None, high=None, why="Needs two GPUs."),
        replace(
            LAB_ROW, id="E1", outcome="cannot-tell", measured=None, low=None, high=None, contradiction="5 is not 6."
        ),
    ),
    provenance=PROVENANCE,
    took_ns=11_700_000_000,
)

RECORDS = {
    "anatomy": ANATOMY,
    "anatomy_survey": SURVEY,
    "diff": DIFF,
    "lab": LAB,
    "measurement": MEASUREMENT,
    "asynchronous": ASYNCHRONOUS,
    "disturbed": DISTURBED_MEASUREMENT,
    "no_headline": NO_HEADLINE,
    "sweep": SWEEP,
    "max_sweep": MAX_SWEEP,
    "null_knee": NULL_KNEE,
    "no_fit": NO_FIT,
    "trace": TRACE,
    "empty_trace": EMPTY_TRACE,
    "many_findings": MANY_FINDINGS,
    "capture": CAPTURE,
    "no_capture": NO_CAPTURE,
    "check": CHECK,
    "gpu_check": GPU_CHECK,
    "bare_check": BARE_CHECK,
    "environment": ENVIRONMENT,
    "comparison": COMPARISON,
    "three_way": THREE_WAY,
    "not_comparable": NOT_COMPARABLE,
    "profile": PROFILE,
    "shapes": SHAPES,
    "sweep_grid": SWEEP_GRID,
    "no_shapes": NO_SHAPES,
    "verification": VERIFICATION,
    "not_verifiable": NOT_VERIFIABLE,
    "two_files": TWO_FILES,
    "traces": TRACES,
    "precision": PRECISION,
    "bare_precision": BARE_PRECISION,
    "remedy": remedy_report(PROVENANCE),
    "whatif": WHAT_IF,
}
