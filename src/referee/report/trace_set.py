"""Do these traces agree? Several reports side by side: one rank does not speak for a job."""

from __future__ import annotations

from collections import Counter

from referee.records.document import Block, Column, Document, Fact, Facts, Heading, Headline, Paragraph, Table
from referee.records.trace_report import NullExperiment, RankJob, RankShare, TraceReport, TraceSet
from referee.report.capture import recording_blocks
from referee.report.findings import finding_blocks
from referee.report.trace import idle_bars
from referee.report.verdict import verdict_sentence
from referee.report.wording import plural, sentence
from referee.units import format_count, format_frac, format_ns, format_number


def compose_trace_set(traces: TraceSet) -> Document:
    """The reports as one document: do they agree, then a row and a short section for each."""
    regimes = Counter(report.verdict.regime for report in traces.reports)
    words = ", ".join(f"{regime} {count:,}" for regime, count in regimes.most_common())
    return Document(
        title=plural(len(traces.reports), "trace"),
        blocks=(
            Headline(
                figure=next(iter(regimes)).capitalize() if len(regimes) == 1 else plural(len(regimes), "regime"),
                sentence=f"By verdict: {words or 'none'}. One trace does not speak for the others.",
                context=_context(traces.job),
                tone="plain" if len(regimes) == 1 else "warn",
            ),
            *_experiment(traces.null_experiment),
            *_job(traces.job),
            Heading(text="Side by side"),
            _table(traces),
            *(block for report in _ordered(traces) for block in _section(report)),
            *finding_blocks(traces.findings),
        ),
    )


def _context(job: RankJob | None) -> tuple[str, ...]:
    if job is None:
        return ("Each trace on its own: times are not compared across files, whose clocks differ.",)
    here = f"{len(job.ranks)} of {job.world_size}" if job.world_size else f"{len(job.ranks)}"
    return (f"Traces of {here} ranks of one job.",)


def _job(job: RankJob | None) -> tuple[Block, ...]:
    """The ranks side by side: their steps, their clocks, and who waits for whom."""
    if job is None:
        return ()
    columns = (
        Column(title="Rank", align="right"),
        Column(title="Host", fit="shorten", priority=3),
        Column(title="Step", align="right"),
        Column(title="In collectives", align="right", priority=2),
        Column(title="Waited", align="right"),
        Column(title="Of its steps", align="right"),
        Column(title="Came last", align="right"),
        Column(title="Clock", align="right", priority=2),
    )
    return (
        Heading(text="One job"),
        Paragraph(text=_who_waits(job)),
        Table(columns=columns, rows=tuple(_rank(share, job) for share in job.ranks)),
    )


def _rank(share: RankShare, job: RankJob) -> tuple[str, ...]:
    clock = "not known"
    if share.clock_offset_ns is not None and share.clock_error_ns is not None:
        sign = "−" if share.clock_offset_ns < 0 else "+"
        clock = f"{sign}{format_ns(abs(share.clock_offset_ns))} ± {format_ns(share.clock_error_ns)}"
    return (
        str(share.rank),
        share.host or "not stated",
        format_ns(share.step_ns),
        format_ns(share.collective_ns),
        format_ns(share.waited_ns),
        "–" if share.waited_frac is None else format_frac(share.waited_frac),
        f"{share.last} of {job.collectives}",
        clock,
    )


def _who_waits(job: RankJob) -> str:
    if not job.collectives:
        return f"No collective can be compared in all of the traces, so nobody is seen to wait.{_uncompared(job)}"
    how = "arrivals on one clock" if job.basis == "clocks" else "durations, because the clocks' offsets are not known"
    late = "No rank comes last to most" if job.waits_for is None else f"Rank {job.waits_for} comes last to most"
    most = max(job.ranks, key=lambda share: share.waited_ns)
    return (
        f"{late} of {plural(job.collectives, 'collective')}; rank {most.rank} waits longest, "
        f"{format_ns(most.waited_ns)} in all. Judged by {how}.{_uncompared(job)}"
    )


def _uncompared(job: RankJob) -> str:
    """Which collectives were cut off or stand in some of the traces only, and what became of them."""
    told = ""
    if job.cut_collectives:
        so = "its arrival counts all the same" if job.basis == "clocks" else "left out, since its duration is not known"
        told += f" Cut off when the profiler stopped: {job.cut_collectives}; {so}."
    if job.unmatched_collectives:
        told += f" Not in all of the traces, and left out: {job.unmatched_collectives}."
    return told


def _experiment(experiment: NullExperiment | None) -> tuple[Block, ...]:
    """The null experiment made of the traces: both sides of the law at each batch size, and where they meet."""
    if experiment is None:
        return ()
    rows = tuple(
        (
            format_number(point.value),
            point.regime,
            format_ns(point.window_ns),
            format_ns(point.busy_ns),
            format_ns(point.host_ns),
            format_count(point.ops_top),
            format_count(point.synchronises),
        )
        for point in experiment.points
    )
    columns = (
        Column(title=experiment.parameter),
        Column(title="Regime"),
        Column(title="Window", align="right"),
        Column(title="Busy", align="right"),
        Column(title="Host", align="right"),
        Column(title="Operators", align="right", priority=2),
        Column(title="Synchronises", align="right", priority=2),
    )
    if experiment.knee_estimate is None:
        knee = "not known"
    else:
        knee = f"near {format_number(experiment.knee_estimate)}"
        knee += "" if experiment.knee_reached else ": not reached by the traces, extrapolated"
    fit = experiment.fit
    flat = fit.slope_ns is not None and fit.slope_ns <= 0
    facts = (
        Fact(label="Knee", value=knee, note="where the device's busy time equals the host's"),
        Fact(label="Law of the windows", value="not told" if flat else fit.law, note=fit.why_no_knee),
    )
    heading = Heading(text=f"Null experiment over {experiment.parameter}")
    return heading, Paragraph(text=sentence(experiment.so)), Table(columns=columns, rows=rows), Facts(facts=facts)


def _ordered(traces: TraceSet) -> tuple[TraceReport, ...]:
    """The reports in the order of the experiment's values where there is one, else as they were given."""
    if traces.null_experiment is None:
        return traces.reports
    value = {point.source: point.value for point in traces.null_experiment.points}
    return tuple(sorted(traces.reports, key=lambda report: value.get(report.source, float("inf"))))


def _table(traces: TraceSet) -> Table:
    rows = tuple(
        (
            report.source,
            report.verdict.regime,
            format_ns(report.totals.window_ns),
            format_frac(report.totals.busy_ns / report.totals.window_ns) if report.totals.window_ns else "–",
            format_count(report.totals.kernels),
            format_count(len(report.steps)),
            format_count(len(report.findings)),
        )
        for report in _ordered(traces)
    )
    columns = (
        Column(title="Trace", fit="shorten"),
        Column(title="Regime"),
        Column(title="Window", align="right"),
        Column(title="Busy", align="right"),
        Column(title="Kernels", align="right", priority=2),
        Column(title="Steps", align="right", priority=3),
        Column(title="Findings", align="right", priority=3),
    )
    return Table(columns=columns, rows=rows)


def _section(report: TraceReport) -> tuple[Block, ...]:
    blocks: list[Block] = [Heading(text=report.source), Paragraph(text=verdict_sentence(report.verdict, report))]
    if report.totals.window_ns > 0:
        blocks.append(idle_bars(report))
    blocks += recording_blocks(report.recording)[1:]
    codes = dict.fromkeys(finding.code for finding in report.findings)
    if codes:
        blocks.append(Paragraph(text=f"Findings: {', '.join(codes)}.", tone="note"))
    return tuple(blocks)
