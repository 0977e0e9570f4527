"""A trace of the host alone: what calling operators costs at least, how many compute at once, and no regime."""

from __future__ import annotations

from dataclasses import replace

import pytest

from referee.analysis.diagnose import diagnose
from referee.analysis.host_alone import at_once, bare_cost_ns, threads_and_cores
from referee.device.chip import format_cores
from referee.records.provenance import Provenance
from referee.report.text import render_text
from referee.report.trace import compose_trace
from referee.trace.builder import TraceBuilder

US = 1_000


def two_threads() -> TraceBuilder:
    """mm of 98 µs and a view of 2 µs on either of two threads, the mms side by side for 50 µs."""
    builder = TraceBuilder()
    for thread, begin in ((1, 0), (2, 48)):
        builder.op("aten::mm", begin * US, 98 * US, thread=thread)
        builder.op("aten::view", (begin + 98) * US, 2 * US, thread=thread)
    return builder


def test_the_least_that_calling_operators_costs() -> None:
    trace = two_threads().build()
    assert bare_cost_ns(trace) == 2 * US
    report = diagnose(trace)
    (found,) = [e for e in report.verdict.evidence if "per-op overhead" in e.name]
    assert found.value == (4 * 2) / 200
    assert report.verdict.regime == "cannot-tell"


def test_without_an_operator_that_computes_nothing_the_cost_is_not_known() -> None:
    trace = TraceBuilder().op("aten::mm", 0, 98 * US).build()
    assert bare_cost_ns(trace) is None
    (found,) = [e for e in diagnose(trace).verdict.evidence if "per-op overhead" in e.name]
    assert found.value is None


def test_threads_are_counted_while_they_are_inside_operators() -> None:
    assert at_once(two_threads().build()) == 2
    assert at_once(TraceBuilder().op("aten::a", 0, US, thread=1).op("aten::b", US, US, thread=2).build()) == 1
    assert at_once(TraceBuilder().build()) == 0


def test_the_operators_are_shown_by_their_own_time() -> None:
    text = render_text(compose_trace(diagnose(two_threads().build())), width=100, color=False)
    assert "Of these" in text
    assert text.index("aten::mm") < text.index("aten::view")


@pytest.mark.parametrize("cores", [{0}, {0, 1}, {0, 1, 2, 3, 8}, {5, 7}])
def test_cores_are_counted_as_provenance_lists_them(cores: set[int]) -> None:
    assert threads_and_cores({"threads": 4, "affinity": format_cores(cores)}) == (4, len(cores))


def test_what_provenance_does_not_state_is_not_guessed() -> None:
    assert threads_and_cores({"threads": 4}) is None
    assert threads_and_cores({"affinity": "0-1"}) is None
    assert threads_and_cores({"threads": 4, "affinity": "?"}) is None


def test_more_threads_than_cores_are_said_to_wait_for_one_another() -> None:
    provenance = Provenance(
        chip={"threads": 2, "affinity": "0-1"},
        dtype="float32",
        shapes=(),
        method={"clock": "profiler"},
        software={},
        switches={},
        machine_state={},
    )
    trace = replace(two_threads().build(), provenance=provenance)
    (found,) = [e for e in diagnose(trace).verdict.evidence if "threads" in e.name]
    assert (found.value, found.threshold) == (2, "2 cores")
    assert "wait for one another; torch.set_num_threads(1)" in found.so


def test_an_empty_file_is_not_blamed_on_a_missing_device() -> None:
    """What torch writes where the schedule's active steps are over and a new cycle has begun."""
    builder = TraceBuilder().overhead("Activity Buffer Request", 0, 5 * US)
    (finding,) = [f for f in diagnose(builder.build()).findings if f.code == "no-device-rows"]
    assert "no operator" in finding.message
    assert "on_trace_ready" in finding.hint
