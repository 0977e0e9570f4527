"""Which analyses of a trace are there? Each with its name (the field of the report), its question, and what it needs.

A new analysis is one file with a pure function, one line here, and one test. Reports are built from this list alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from referee.analysis.evidence import judge, judge_warm
from referee.analysis.findings import trace_findings
from referee.analysis.graphable import graphable
from referee.analysis.memory import memory_timeline
from referee.analysis.operators import launch_stats, operator_table
from referee.analysis.owners import longest_gaps
from referee.analysis.partition import partition_steps
from referee.analysis.remedies import remedies
from referee.analysis.study import Study
from referee.trace.totals import device_totals


@dataclass(frozen=True)
class Analysis:
    """One analysis: the report's field, the question it answers, what it needs to have something to say, and how.

    ``apart``: it takes nothing from the others but the work of each device, so that a helper can do it beside them.
    """

    name: str
    question: str
    needs: str
    run: Callable[[Study], object]
    apart: bool = False


ANALYSES: tuple[Analysis, ...] = (
    Analysis("totals", "How much of everything is there?", "nothing", lambda s: s.totals),
    Analysis("devices", "How much on each device?", "device rows", lambda s: device_totals(s.trace), apart=True),
    Analysis("idle", "Why was the device idle?", "linked device rows", lambda s: s.idle),
    Analysis("timeline", "What ran when something ran?", "device rows", lambda s: s.timeline),
    Analysis("utilisation", "How busy was the device?", "device rows", lambda s: s.utilisation),
    Analysis("queue", "How long did work wait?", "linked device rows", lambda s: s.queue),
    Analysis("law", "What does the law say?", "launches and device rows", lambda s: s.law),
    Analysis("steps", "What did each step do?", "steps", lambda s: s.steps),
    Analysis(
        "partition", "What was going on in each step?", "steps", lambda s: partition_steps(s.trace, s.works), apart=True
    ),
    Analysis("steps_from", "Where do the steps come from?", "nothing", lambda s: s.trace.steps_from),
    Analysis("top_kernels", "Which kernels take the time?", "device rows", lambda s: s.top_kernels, apart=True),
    Analysis(
        "critical_path", "Which chain of work set the time?", "host rows or linked rows", lambda s: s.critical_path
    ),
    Analysis("verdict", "Which regime is it?", "at least two device rows, kernels among them", judge),
    Analysis("warm", "And without the first-time costs?", "first-time costs", judge_warm),
    Analysis("operators", "Which operators take the time?", "operators", lambda s: operator_table(s.trace), apart=True),
    Analysis(
        "launch_stats", "What does launching cost?", "linked launches", lambda s: launch_stats(s.trace), apart=True
    ),
    Analysis("memory", "How much memory was in use?", "memory events", lambda s: memory_timeline(s.trace, s.details)),
    Analysis("gaps", "Which idle intervals are longest?", "device rows", lambda s: longest_gaps(s.trace, s.gaps)),
    Analysis("sync_sites", "Who waits for the device?", "waits", lambda s: s.sync_sites),
    Analysis(
        "graphable",
        "What could be replayed as a graph?",
        "launches",
        lambda s: graphable(s.trace, s.works, s.details),
        apart=True,
    ),
    Analysis("losses", "What do the three losses cost?", "linked device rows", lambda s: s.losses),
    Analysis("remedies", "What would help?", "linked device rows", remedies),
    Analysis("findings", "What limits this answer?", "nothing", trace_findings),
)
"""Every analysis of a trace, in the order of the report."""
