"""Which claims hold here? Runs the experiments and holds each number against the range that its claim states."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from referee.device.provenance import collect, mark_machine
from referee.errors import CannotTell, EnvironmentLacks
from referee.lab import arguments, dispatching, eager, measuring, recorded, recorded_diagnosis, regimes, structure
from referee.lab.claims import Claim
from referee.lab.claims.terms import words_in
from referee.lab.judging import judge, without
from referee.lab.laboratory import Laboratory, Reading, Recorded
from referee.records.finding import Finding
from referee.records.lab import LabReport, LabRow, LabTrace

Ask = Callable[[Laboratory], Reading]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """How one claim is tested: live, from recorded traces, or both; ``needs`` names a device that is not here.

    ``no_traces`` says why recorded traces cannot answer, where they cannot.
    """

    live: Ask | None = None
    traces: Ask | None = None
    needs: str = ""
    no_traces: str = ""


EXPERIMENTS: dict[str, Experiment] = {
    "M1": Experiment(live=measuring.synchronous),
    "M2": Experiment(live=measuring.asynchronous, traces=recorded.unfinished, needs="a CUDA device"),
    "M3": Experiment(live=measuring.lazy),
    "M4": Experiment(live=measuring.amortised),
    "M5": Experiment(live=measuring.linear),
    "M6": Experiment(traces=recorded.linked, needs="a CUDA device"),
    "M7": Experiment(live=measuring.first_steps),
    "M8": Experiment(live=measuring.autocast),
    "M9": Experiment(live=measuring.saved_by_scaling),
    "M10": Experiment(live=measuring.lost_in_bf16),
    "M11": Experiment(live=measuring.provenance),
    "E1": Experiment(live=eager.amid_others),
    "E2": Experiment(traces=recorded.elementwise, needs="a CUDA device"),
    "E3": Experiment(live=eager.thousand),
    "E4": Experiment(live=structure.layer_operators),
    "E5": Experiment(live=structure.backward_operators),
    "E6": Experiment(
        live=regimes.crossing,
        needs="a CUDA device",
        no_traces="a recorded call holds the profiler's own part, and the size found would be too large by it",
    ),
    "E7": Experiment(traces=recorded.launch_calls, needs="a CUDA device"),
    "E8": Experiment(live=regimes.batch_regimes),
    "E9": Experiment(live=dispatching.priority),
    "E10": Experiment(live=dispatching.dispatches),
    "E11": Experiment(live=structure.nodes),
    "E12": Experiment(live=structure.saved),
    "E13": Experiment(live=structure.versions),
    "E14": Experiment(live=eager.tape_cost),
    "E15": Experiment(live=structure.inference),
    "E16": Experiment(live=structure.compiled_nodes),
    "E17": Experiment(traces=recorded.recoverable, needs="a CUDA device"),
    "E18": Experiment(live=structure.requests),
    "E19": Experiment(live=eager.hot_against_cold),
    "E20": Experiment(live=arguments.per_argument),
    "E21": Experiment(live=eager.saving),
    "D1": Experiment(traces=recorded_diagnosis.any_against_weighted, needs="a CUDA device"),
    "D2": Experiment(traces=recorded_diagnosis.questions, needs="a CUDA device"),
    "D3": Experiment(traces=recorded_diagnosis.gaps, needs="a CUDA device"),
    "D4": Experiment(traces=recorded_diagnosis.totals, needs="a CUDA device"),
    "D5": Experiment(live=regimes.batch_growth),
    "D6": Experiment(
        live=regimes.fixes,
        needs="a CUDA device",
        no_traces="they would have to be of one step in all four forms, and a profiler slows these unequally",
    ),
    "D7": Experiment(
        live=regimes.faster_device,
        needs="two CUDA devices of different speed",
        no_traces="they would have to be of one step on both, and the profiler's part is most of a small one",
    ),
    "D8": Experiment(live=regimes.served_batch),
}
"""Claim → its experiment."""


_SETTLED = "the last result of each block is waited for before the clock stops"


def run_lab(
    claims: Sequence[Claim],
    lab: Laboratory,
    *,
    experiments: Mapping[str, Experiment] = EXPERIMENTS,
    findings: Sequence[Finding] = (),
    command: str = "",
    progress: Callable[[str], None] = lambda _: None,
) -> LabReport:
    """Test each of ``claims`` in ``lab``. An interrupt is raised again: rows are quickly repeated."""
    before, start_ns = mark_machine(), time.perf_counter_ns()
    rows: list[LabRow] = []
    known: dict[str, str] = {}
    for claim in claims:
        progress(f"{claim.id}: {claim.measures}")
        row = put_to_test(claim, experiments[claim.id], lab)
        shown = (row.claimed, row.range_from, row.measures, row.how, row.taken, row.why, row.untested, row.teaches)
        words = words_in(" ".join(shown), known=known)
        known |= words
        rows.append(replace(row, words=words or None))
    provenance = collect(
        lab.device,
        dtype="float32",
        shapes=(),
        method={"clock": "settled_amortised", "settle": _SETTLED, "budget_ns": lab.plan.budget_ns},
        before=before,
    )
    return LabReport(
        rows=tuple(rows),
        provenance=provenance,
        took_ns=time.perf_counter_ns() - start_ns,
        findings=tuple(findings),
        traces=tuple(_trace(recorded) for recorded in lab.recorded),
        command=command,
    )


def _trace(recorded: Recorded) -> LabTrace:
    """A trace by its name, and the chips that its file states, each once."""
    names = dict.fromkeys(device.name for device in recorded.trace.devices if device.name)
    return LabTrace(name=recorded.name, chips=tuple(names))


def put_to_test(claim: Claim, experiment: Experiment, lab: Laboratory) -> LabRow:
    """One claim: live where that is possible, from the recorded traces otherwise, or what it would take."""
    missing = experiment.needs
    if experiment.live is not None:
        try:
            return judge(claim, experiment.live(lab), basis="live")
        except EnvironmentLacks as error:
            missing = missing or str(error)
        except CannotTell as error:
            return without(claim, "cannot-tell", str(error))
    if experiment.traces is not None and lab.recorded:
        try:
            return judge(claim, experiment.traces(lab), basis="recorded")
        except CannotTell as error:
            return without(claim, "needs-device", f"Needs {missing}. {error}")
    return without(claim, "needs-device", _needs(experiment, missing, lab))


def _needs(experiment: Experiment, missing: str, lab: Laboratory) -> str:
    """What it would take: a device, or, where that is here, a trace of it."""
    if experiment.traces is None:
        return f"Needs {missing}." + (
            f" Recorded traces cannot answer it: {experiment.no_traces}." if experiment.no_traces else ""
        )
    try:
        lab.open("cuda")
    except EnvironmentLacks:
        return f"Needs {missing}. Recorded traces can answer it: --trace."
    return "Needs a trace of the device: record one with `referee profile --device cuda`, and give it with --trace."
