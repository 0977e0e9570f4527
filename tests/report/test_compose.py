"""Does the document say what the record says, in the order in which a reader needs it?"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import replace
from typing import get_args

import pytest

from referee.records.document import Bars, Block, Document, Entries, Facts, Findings, Heading, Headline, Paragraph, Plot
from referee.records.measurement import Clocks, Measurement
from referee.records.schema import Record
from referee.records.trace_report import TraceReport
from referee.records.verdict import Regime, Verdict
from referee.report.compose import compose
from referee.report.measurement import naive_sentence, thinned
from referee.report.sweep import law_value
from referee.report.text import render_text
from referee.report.verdict import gain_words, verdict_sentence

from .live_samples import (
    ASYNCHRONOUS,
    COMPARISON,
    DISTURBED,
    MAX_SWEEP,
    MEASUREMENT,
    NO_FIT,
    NO_HEADLINE,
    NO_SHAPES,
    NOT_COMPARABLE,
    NOT_VERIFIABLE,
    NULL_KNEE,
    ONE_BATCH,
    SHAPES,
    SWEEP,
    THREE_WAY,
    VERIFICATION,
)
from .samples import (
    CHECK,
    PROFILE,
    RECORDS,
    TWO_FILES,
)
from .trace_samples import (
    EMPTY_TRACE,
    MANY_FINDINGS,
    TRACE,
)

MEASURED = {name: record for name, record in RECORDS.items() if isinstance(record, Measurement)}
TRACED = {name: record for name, record in RECORDS.items() if isinstance(record, TraceReport)}


def blocks_of(document: Document, kind: type[Block]) -> list[Block]:
    return [block for block in document.blocks if isinstance(block, kind)]


def headline(record: Record) -> Headline:
    first = compose(record).blocks[0]
    assert isinstance(first, Headline)
    return first


def shown(record: Record) -> str:
    """All that is shown of a record, without line breaks."""
    return " ".join(render_text(compose(record), width=200, color=False).split())


def headings(record: Record) -> list[str]:
    return [block.text for block in compose(record).blocks if isinstance(block, Heading) and block.level == 2]


def test_every_kind_of_record_is_composed() -> None:
    assert {type(record) for record in RECORDS.values()} == set(get_args(Record))
    with pytest.raises(TypeError, match="not a record"):
        compose("text")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", RECORDS)
def test_the_answer_comes_first(name: str) -> None:
    assert headline(RECORDS[name]).sentence


@pytest.mark.parametrize("name", MEASURED)
def test_a_number_never_stands_without_chip_dtype_shapes_and_method(name: str) -> None:
    context = "\n".join(headline(MEASURED[name]).context)
    for part in ("Xeon", MEASURED[name].provenance.dtype, "(8, 128) int64", "settled, amortised"):
        assert part in context


@pytest.mark.parametrize("name", MEASURED)
def test_the_naive_claim_is_always_printed(name: str) -> None:
    assert "A timer that does not wait would have claimed" in headline(MEASURED[name]).sentence


def test_the_naive_claim_says_how_far_off_it_is() -> None:
    tenfold = replace(ASYNCHRONOUS, naive_ns=1_000_000.0, median_ns=10_000_000.0)
    assert naive_sentence(tenfold).endswith("1.00 ms: 10.0× too fast.")
    assert naive_sentence(replace(tenfold, naive_ns=20_000_000.0)).endswith("20.0 ms: 2.00× too slow.")
    assert naive_sentence(replace(tenfold, naive_ns=10_100_000.0)).endswith("10.1 ms, about the same.")
    assert "was not taken" in naive_sentence(replace(tenfold, naive_ns=None))
    assert "the same by construction" in naive_sentence(MEASUREMENT)


def test_without_a_headline_the_reason_comes_first() -> None:
    first = headline(NO_HEADLINE)
    assert first.figure == "No headline number"
    assert first.sentence.startswith("Every one of 96 blocks was preempted")
    assert first.tone == "bad"
    assert "12.4 ms per call" not in shown(NO_HEADLINE)


def test_the_enqueue_rule_needs_a_clock_that_means_something() -> None:
    assert "the device is the limit" in shown(ASYNCHRONOUS)
    blocked = replace(ONE_BATCH, code="enqueue-blocked")
    assert "enqueueing was blocked" in shown(replace(ASYNCHRONOUS, findings=(blocked,)))
    assert "is the limit" not in shown(replace(ASYNCHRONOUS, findings=(blocked,)))
    same = Clocks(enqueue_ns=12e6, settled_amortised_ns=12.4e6, settled_per_call_ns=None, device_ns=None)
    assert "the host is the limit" in shown(replace(ASYNCHRONOUS, clocks=same))
    assert "is the limit" not in shown(MEASUREMENT)


def test_samples_keep_their_bursts_when_thinned() -> None:
    points = [(float(k), 1.0) for k in range(10_000)]
    points[4_321] = (4_321.0, 9.0)
    points[77] = (77.0, 0.5)
    kept = thinned(points)
    assert len(kept) <= 600
    assert (4_321.0, 9.0) in kept
    assert (77.0, 0.5) in kept
    assert kept == sorted(kept)


def test_samples_that_are_no_times_are_not_drawn() -> None:
    edited = replace(MEASUREMENT, samples_ns=(1e308, *MEASUREMENT.samples_ns[1:]))
    assert "time per call" in render_text(compose(edited), width=80, color=False)
    endless = replace(MEASUREMENT, samples_ns=(1e308,) * len(MEASUREMENT.samples_ns))
    assert "time per call" not in render_text(compose(endless), width=80, color=False)


def test_samples_are_drawn_by_whether_they_were_clean() -> None:
    (plot,) = blocks_of(compose(MEASUREMENT), Plot)
    assert isinstance(plot, Plot)
    assert {curve.label for curve in plot.curves} == {"clean block", "preempted, or just behind one"}
    assert sum(len(curve.xs) for curve in plot.curves) == len(MEASUREMENT.samples_ns)


def test_a_sweep_says_its_knee_or_why_there_is_none() -> None:
    assert headline(SWEEP).figure == "Knee at batch_size ≈ 3.48 (3.10 to 3.90)"
    assert headline(NULL_KNEE).figure == "No knee"
    assert headline(NULL_KNEE).sentence == "Only one point lies below the crossing at 1.4."
    assert headline(NO_FIT).figure == "No fit"
    assert "Throughput" in shown(SWEEP)


def test_a_sweep_names_what_limits_its_points() -> None:
    assert headline(SWEEP).tone == "good"
    disturbed = replace(
        SWEEP, points=tuple(replace(p, measurement=replace(p.measurement, findings=(DISTURBED,))) for p in SWEEP.points)
    )
    assert headline(disturbed).tone == "warn"
    assert "Limits of the points: disturbed at 6 of 6." in shown(disturbed)
    assert "Limits of the points: disturbed at 1 of 4, no-clean-block at 1 of 4." in shown(NO_FIT)


def test_a_sweep_that_ended_before_its_first_point_is_shown() -> None:
    assert "no point to show" in shown(replace(NO_FIT, points=()))


def test_the_drawn_law_is_the_fitted_one() -> None:
    assert law_value(SWEEP.fit, 10) == pytest.approx(3.9e6 + 11.2e6)
    assert law_value(MAX_SWEEP.fit, 1) == pytest.approx(5.2e6)
    assert law_value(MAX_SWEEP.fit, 100) == pytest.approx(31.4e6)
    assert law_value(NO_FIT.fit, 1) is None
    (plot,) = blocks_of(compose(SWEEP), Plot)
    assert isinstance(plot, Plot)
    law = plot.curves[1]
    assert law.style == "dashed"
    assert all(math.isclose(y, 3.9e6 + 1.12e6 * x) for x, y in zip(law.xs, law.ys, strict=True))
    assert plot.marks == ((3.48, "knee"),)


def test_a_trace_reads_as_one_answer() -> None:
    assert headings(TRACE) == [
        "Why",
        "Where the window went",
        "The law: t_step ≈ max(N_ops × t_cpu, Σ t_gpu)",
        "Utilisation",
        "Steps",
        "Where device time went",
        "The three losses of eager mode",
        "What to try",
        "Findings",
    ]
    assert headline(TRACE).sentence == (
        "The device waits for the host to issue the next operation: 57.3 % of the window is per-op idle, "
        "13.8 ms of 24.1 ms."
    )


def test_the_reasoning_shows_figure_threshold_and_conclusion() -> None:
    (reasoning, remedies) = blocks_of(compose(TRACE), Entries)
    assert isinstance(reasoning, Entries)
    assert isinstance(remedies, Entries)
    assert [entry.figure for entry in reasoning.entries] == ["63.1 %", "57.3 %", "929", "not known", "18.2 µs"]
    assert all(
        entry.against.startswith("held against: ") and entry.text.startswith("→ ") for entry in reasoning.entries
    )
    assert [entry.figure for entry in remedies.entries] == ["7.10 to 13.8 ms", "up to 2.20 ms", "gain not priced"]
    assert all(entry.code for entry in remedies.entries)


@pytest.mark.parametrize("name", TRACED)
def test_the_parts_of_the_window_sum_to_it(name: str) -> None:
    stacked = [block for block in compose(TRACED[name]).blocks if isinstance(block, Bars) and block.stacked]
    assert bool(stacked) == (TRACED[name].totals.window_ns > 0)
    for block in stacked:
        assert sum(bar.frac for bar in block.bars) == pytest.approx(1.0)


def test_the_window_is_divided_by_what_ran_and_why_it_idled() -> None:
    (bars, _) = blocks_of(compose(TRACE), Bars)
    assert isinstance(bars, Bars)
    shares = {bar.label: bar.frac * TRACE.totals.window_ns for bar in bars.bars}
    idle = sum(ns for name, ns in shares.items() if not name.startswith("busy"))
    assert idle == pytest.approx(TRACE.totals.idle_ns)
    assert shares["busy, computation"] == pytest.approx(TRACE.timeline.computation_ns)
    assert shares["host-starved, per-op"] == pytest.approx(TRACE.idle.host_starved.per_op_ns)
    assert "loader" in bars.caption


def test_a_cause_has_the_same_colour_in_every_report() -> None:
    other = replace(
        TRACE,
        timeline=replace(TRACE.timeline, exposed_copy_ns=0),
        idle=replace(TRACE.idle, synchronised_ns=0),
    )
    hues = [
        {bar.label: bar.hue for block in compose(report).blocks if isinstance(block, Bars) for bar in block.bars}
        for report in (TRACE, other)
    ]
    assert {label for label in hues[0] if label in hues[1]} >= {"host-starved, per-op", "dependency", "other"}
    assert all(hues[1][label] == hue for label, hue in hues[0].items() if label in hues[1])
    assert "busy" in hues[1]


def test_a_mixture_bounds_its_tail_or_says_what_that_takes() -> None:
    assert headline(SHAPES).figure == "p50 2.20 ms, p95 2.64 ms, p99 3.52 ms"
    assert "at most 4.18 ms at 95 %" in headline(SHAPES).sentence
    unbounded = replace(SHAPES, mixture=replace(SHAPES.points[2].tail, p99_high_ns=None))
    assert "that takes 299 calls" in headline(unbounded).sentence
    assert headline(NO_SHAPES).sentence.startswith("Every one of 96 blocks was preempted")


def test_steps_without_a_device_show_the_host_alone() -> None:
    text = shown(replace(EMPTY_TRACE, steps=TRACE.steps))
    assert "Step Wall Ops ProfilerStep#0 8.04 ms 1,530" in text
    assert "Lead idle" not in text


def test_an_empty_trace_cannot_tell_and_says_why() -> None:
    assert headline(EMPTY_TRACE).figure == "Cannot tell"
    assert headline(EMPTY_TRACE).sentence == "The evidence does not decide: the trace holds no device row."
    assert "Read the findings first: no-device-rows." in shown(EMPTY_TRACE)
    assert "there is no window to divide" in shown(EMPTY_TRACE)


def test_long_lists_are_cut_and_say_so() -> None:
    text = shown(MANY_FINDINGS)
    assert "The 12 longest of 132" in text
    assert re.search(r"Read the findings first: ([a-z-]+, ){4}[a-z-]+ and \d+ more\.", text)
    (findings,) = blocks_of(compose(MANY_FINDINGS), Findings)
    assert isinstance(findings, Findings)
    assert len(findings.findings) == 40


@pytest.mark.parametrize("regime", get_args(Regime))
@pytest.mark.parametrize("trace", [None, TRACE, EMPTY_TRACE], ids=["live", "trace", "empty"])
def test_every_regime_has_a_sentence(regime: Regime, trace: TraceReport | None) -> None:
    verdict = Verdict(regime=regime, evidence=(), undecided_because="two causes are close")
    sentence = verdict_sentence(verdict, trace)
    assert sentence[0].isupper()
    assert sentence.endswith(".")
    assert "two causes are close" in sentence
    assert sentence.count(":") <= 1


def test_a_gain_is_a_range_or_says_what_it_lacks() -> None:
    assert gain_words(1e6, 2e6) == "1.00 to 2.00 ms"
    assert gain_words(None, 2e6) == "up to 2.00 ms"
    assert gain_words(1e6, None) == "at least 1.00 ms"
    assert gain_words(None, None) == "gain not priced"


def test_a_comparison_gives_the_ratio_its_interval_and_the_floor() -> None:
    first = headline(COMPARISON)
    assert first.figure == "Faster: 0.923× the time"
    assert first.sentence.startswith(
        "B is fused.py:step, A is eager.py:step: time B / time A is 0.923, 95 % interval 0.917 to 0.931."
    )
    assert "A against itself read 0.996 to 1.005 in this run." in first.sentence
    assert first.tone == "good"


def test_a_single_pair_is_not_given_an_interval() -> None:
    pair = replace(COMPARISON.pairs[0], ratio=2.806, ci_low=2.806, ci_high=2.806, clean_quads=1, answer="cannot-tell")
    one = replace(COMPARISON, ratio=2.806, ci_low=2.806, ci_high=2.806, answer="cannot-tell", pairs=(pair,))
    assert "time B / time A is 2.806, one pair only, no interval." in headline(one).sentence
    assert "2.806 to 2.806" not in shown(one)


def test_a_comparison_that_cannot_tell_says_why_first() -> None:
    first = headline(NOT_COMPARABLE)
    assert first.figure == "Cannot tell"
    assert first.sentence.startswith("The sides differ in more than what is compared.")
    assert "float32" in shown(NOT_COMPARABLE)
    assert "What else differs" in headings(NOT_COMPARABLE)


def test_a_verification_shows_both_measurements() -> None:
    assert headline(VERIFICATION).figure == "Reproduced"
    text = shown(VERIFICATION)
    assert "saved 12.41 ms" in text
    assert "here 12.56 ms" in text
    assert "Time here / time saved 1.012 · 1.008 to 1.016" in text
    assert "What else differs" in headings(NOT_VERIFIABLE)
    assert "chip.threads 2 8" in shown(NOT_VERIFIABLE)


def test_further_candidates_are_listed_against_the_first() -> None:
    assert "Each against the first" in headings(THREE_WAY)
    assert "Each against the first" not in headings(COMPARISON)


def test_a_profile_shows_each_file_under_its_name() -> None:
    assert TRACE.source not in headings(PROFILE)
    assert {TRACE.source, EMPTY_TRACE.source} <= set(headings(TWO_FILES))
    assert headings(TWO_FILES).count("Provenance") == 1


def test_a_check_states_each_finding_and_the_provenance_once() -> None:
    document = compose(CHECK)
    (findings,) = blocks_of(document, Findings)
    assert isinstance(findings, Findings)
    assert [finding.code for finding in findings.findings] == ["one-batch-size", "no-device-rows"]
    assert [block.text for block in blocks_of(document, Heading)].count("Provenance") == 1  # type: ignore[union-attr]
    assert [block.figure for block in blocks_of(document, Headline)] == ["12.41 ms per call", "Overhead-bound"]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", RECORDS)
def test_the_words_stay_calm(name: str) -> None:
    text = shown(RECORDS[name])
    assert "!" not in text
    assert "None" not in text
    assert "nan" not in text.split()


@pytest.mark.parametrize("name", RECORDS)
def test_no_block_is_empty(name: str) -> None:
    for block in compose(RECORDS[name]).blocks:
        if isinstance(block, Facts):
            assert block.facts
        if isinstance(block, Paragraph | Heading):
            assert block.text


def test_composing_and_plain_text_load_no_terminal_library() -> None:
    code = (
        "import sys; import referee.report.compose, referee.report.text, referee.report.html, referee.report.markdown;"
        "assert not {'rich', 'torch', 'numpy'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
