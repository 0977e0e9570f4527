"""How a claim is judged, chosen, reported and shown; and that every row can come out otherwise."""

from __future__ import annotations

import re
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from referee.cli.main import main
from referee.device.fake import FakeSync
from referee.errors import OptionError
from referee.lab import measuring
from referee.lab.claims import BY_ID, CLAIMS, METHODS, MS, US, select
from referee.lab.claims.claim import MORE_THAN_NOTHING
from referee.lab.claims.terms import words_in
from referee.lab.judging import judge, without
from referee.lab.laboratory import Part, Reading
from referee.lab.run import EXPERIMENTS, Experiment, run_lab
from referee.records.schema import load, save
from referee.report.compose import compose
from referee.report.text import render_text
from referee.units import format_apart

from .planted import laboratory


def test_every_claim_has_an_experiment_and_says_what_it_teaches() -> None:
    assert set(EXPERIMENTS) == set(BY_ID)
    assert len(CLAIMS) == len(BY_ID) == 40
    for claim in CLAIMS:
        assert claim.teaches.endswith(".")
        assert claim.otherwise.endswith(".")
        assert claim.otherwise != claim.teaches or claim.id in {"M5", "M8"}
        assert claim.low <= claim.high
        experiment = EXPERIMENTS[claim.id]
        assert experiment.live is not None or experiment.traces is not None


def test_every_claim_says_how_it_is_taken_on_what_and_why_in_this_range() -> None:
    assert set(METHODS) == set(BY_ID)
    assert [name for name, method in METHODS.items() if not method.how.endswith(".")] == []
    directions = [claim for claim in CLAIMS if not re.search(r"\d", claim.claimed) and inf in (claim.high, -claim.low)]
    unexplained = {claim.id for claim in directions if not METHODS[claim.id].range_from}
    # "At least two" is what "several" says; all others are thresholds of ours.
    assert unexplained <= {"E10"}


def test_a_word_of_the_trade_is_explained_where_it_is_used_first() -> None:
    first = words_in("A kernel is launched, then tapes are read in no_grad.", known={})
    assert list(first) == ["kernel", "tape", "no_grad"]
    assert words_in("the kernels of a tape", known=first) == {}
    assert words_in("recorded-tape, out=x, taped", known={}) == {}
    report = some_report()
    assert "settled" in (report.rows[0].words or {})
    assert all(set(row.words or {}).isdisjoint(report.rows[0].words or {}) for row in report.rows[1:])


def test_no_row_is_constant() -> None:
    """Every claim is asked by a test here in a world that makes it false."""
    source = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    tested = set(re.findall(r'row\("(\w+)"', source))
    assert set(BY_ID) - tested == set()


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (1.0, 1.9, "differs"),
        (1.0, 2.0, "cannot-tell"),
        (1.9, 2.3, "cannot-tell"),
        (2.0, 3.0, "holds"),
        (2.9, 3.1, "cannot-tell"),
        (1.0, 9.0, "cannot-tell"),
        (2.5, 2.6, "holds"),
        (3.0, 9.0, "cannot-tell"),
        (3.1, 9.0, "differs"),
    ],
)
def test_an_interval_in_the_range_holds_outside_differs_and_across_a_bound_leaves_open(
    low: float, high: float, outcome: str
) -> None:
    claim = replace(BY_ID["M4"], low=2.0, high=3.0, below="a reason", above="a reason")
    found = judge(claim, Reading(value=(low + high) / 2, low=low, high=high), basis="live")
    assert found.outcome == outcome
    assert ("A possible reason, not tested: a reason." in found.why) == (outcome == "differs")
    assert ("Even the near end of the interval, " in found.why) == (outcome == "differs")


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (2.1, 2.9, "holds"),
        (1.0, 1.9, "differs"),
        (3.1, 4.0, "differs"),
        (2.5, 3.5, "cannot-tell"),
        (None, None, "cannot-tell"),
    ],
)
def test_a_part_counts_as_the_number_does(low: float | None, high: float | None, outcome: str) -> None:
    claim = replace(BY_ID["M4"], low=2.0, high=3.0)
    part = Part(name="a part", value=low, low=low, high=high, claimed_low=2.0, claimed_high=3.0)
    found = judge(claim, Reading(value=2.5, low=2.4, high=2.6, parts=(part,)), basis="live")
    assert found.outcome == outcome
    assert ("A part" in found.why) == (outcome != "holds")
    assert [(part.name, part.outcome) for part in found.parts] == [("a part", outcome)]
    wrong = judge(claim, Reading(value=1.5, low=1.4, high=1.6, parts=(part,)), basis="live")
    assert wrong.outcome == "differs"


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (1.0, 2.5, "with an end at 1.00×, has values on both sides of the claim's least, 2.00×."),
        (1.0, 2.0, "which has its end at 1.00×, lies below the claim's least, 2.00×, but for its upper end."),
        (2.5, 5.0, "with an end at 5.00×, has values on both sides of the claim's most, 3.00×."),
        (3.0, 5.0, "which has its end at 5.00×, lies above the claim's most, 3.00×, but for its lower end."),
        (1.9996, 2.5, "with an end at 1.9996×, has values on both sides of the claim's least, 2.0000×."),
    ],
)
def test_an_open_row_names_the_bound_with_digits_that_tell_it_from_the_interval(
    low: float, high: float, words: str
) -> None:
    claim = replace(BY_ID["M4"], low=2.0, high=3.0)
    assert (
        judge(claim, Reading(value=(low + high) / 2, low=low, high=high), basis="live").why == f"The interval, {words}"
    )


@pytest.mark.parametrize(
    ("first", "second", "unit", "words"),
    [
        (1.0496, 1.05, "ratio", ("1.0496×", "1.0500×")),
        (1.04996, 1.05, "ratio", ("1.04996×", "1.05000×")),
        (1_999.6, 2_000.0, "ns", ("1.9996 µs", "2.0000 µs")),
        (0.99996, 1.0, "frac", ("99.996 %", "100.000 %")),
        (2.0, 3.0, "ratio", ("2.00×", "3.00×")),
        (2.0, 2.0, "ratio", ("2.00×", "2.00×")),
        (1.2341, 1.2342, "bits", ("1.2341 bits", "1.2342 bits")),
    ],
)
def test_two_quantities_are_told_apart_where_they_differ(
    first: float, second: float, unit: str, words: tuple[str, str]
) -> None:
    assert format_apart(first, second, unit) == words


def shown(reading: Reading) -> str:
    """The table's row of a claim of 2 to 3 times, for this reading."""
    judged = judge(replace(BY_ID["M4"], low=2.0, high=3.0), reading, basis="live")
    return " ".join(render_text(compose(replace(some_report(), rows=(judged,))), width=160, color=False).split())


def test_a_row_whose_number_holds_names_the_part_that_decided() -> None:
    def part(name: str, value: float) -> Part:
        return Part(name=name, claimed_low=2.0, claimed_high=3.0, value=value, low=value, high=value, unit="ratio")

    good, bad = Reading(value=2.5, low=2.4, high=2.6), Reading(value=1.5, low=1.4, high=1.6)
    assert "number holds; differs: one dispatch " in shown(
        replace(good, parts=(part("one dispatch", 9.0), part("another", 2.5)))
    )
    assert "number holds" not in shown(replace(bad, parts=(part("one dispatch", 9.0),)))
    unmeasured = Part(name="a graph", claimed_low=2.0, claimed_high=3.0)
    assert "number holds; cannot tell: a graph " in shown(replace(good, parts=(unmeasured,)))
    assert "number holds" not in shown(good)


def test_a_part_that_is_not_tested_stands_in_the_table_and_in_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    untested = {"a queue": "it takes a device", "the rest": "E1 has it"}
    monkeypatch.setitem(METHODS, "M4", replace(METHODS["M4"], untested=untested))
    text = shown(Reading(value=2.5, low=2.4, high=2.6))
    assert "holds (not tested: a queue, the rest)" in text
    assert "Not tested here: a queue (it takes a device); the rest (E1 has it)." in text
    assert "1 row leaves a part of its claim untested, as the table says; " in text
    monkeypatch.setitem(METHODS, "M4", replace(METHODS["M4"], untested={}))
    assert "leaves a part of its claim" not in shown(Reading(value=2.5, low=2.4, high=2.6))


@pytest.mark.parametrize("low", [1.0, 4.0])
def test_the_head_counts_every_row_that_the_table_says_leaves_something(low: float) -> None:
    """Whatever came out for the rest, and where there is no number at all."""
    rows = (
        judge(BY_ID["E7"], Reading(value=5.0, low=low, high=5.0), basis="live"),
        without(BY_ID["D7"], "needs-device", "."),
    )
    text = " ".join(render_text(compose(replace(some_report(), rows=rows)), width=200, color=False).split())
    assert "2 rows leave a part of their claim untested" in text
    assert "needs a device (not tested: each of the four causes)" in text


def test_a_claim_that_states_no_figure_is_not_settled_by_one() -> None:
    for value in (0.0, 0.5, 1.0):
        judged = judge(BY_ID["D2"], Reading(value=value, low=value, high=value, note="Seen."), basis="recorded")
        assert judged.outcome == "cannot-tell"
        assert judged.why.startswith("The claim advises an order, and ")
        assert judged.why.endswith(" Seen.")
    text = " ".join(render_text(compose(replace(some_report(), rows=(judged,))), width=200, color=False).split())
    assert "True if it is: no figure (the course gives advice and no figure)." in text


def test_what_is_quoted_is_in_the_claim() -> None:
    for claim in CLAIMS:
        for quoted in re.findall("“(.+?)”", METHODS[claim.id].range_from):
            assert quoted in claim.claimed, claim.id


def test_what_decides_is_told_before_what_was_seen_beside_it() -> None:
    claim = replace(BY_ID["M4"], low=2.0, high=3.0)
    judged = judge(claim, Reading(value=1.5, low=1.4, high=1.6, note="Seen beside it."), basis="live")
    assert judged.why.startswith("Even the near end")
    assert judged.why.endswith("Seen beside it.")


def test_a_part_that_differs_does_not_hide_one_that_cannot_be_told() -> None:
    parts = (
        Part(name="one", claimed_low=2.0, claimed_high=3.0, value=9.0, low=9.0, high=9.0, unit="ratio"),
        Part(name="another", claimed_low=2.0, claimed_high=3.0),
    )
    assert "number holds; differs: one; cannot tell: another" in shown(
        Reading(value=2.5, low=2.4, high=2.6, parts=parts)
    )


def test_a_number_across_a_bound_is_told_beside_the_part_that_decided() -> None:
    part = Part(name="one", claimed_low=2.0, claimed_high=3.0, value=9.0, low=9.0, high=9.0, unit="ratio")
    open_number = Reading(value=2.1, low=1.9, high=2.3, parts=(part,))
    assert "number cannot be told; differs: one " in shown(open_number)
    assert "number " not in shown(replace(open_number, low=1.5, high=1.6)).partition("Each claim")[0]


def test_the_head_has_the_load_and_no_words_of_one_measurement() -> None:
    report = some_report()
    state = {**report.provenance.machine_state, "load_1min": 3.83}
    busy = replace(report, provenance=replace(report.provenance, machine_state=state))
    text = " ".join(render_text(compose(busy), width=160, color=False).split())
    assert "load when the run began: 3.83" in text
    assert "none seen" not in text
    assert "each row's own, told under How" in text
    assert "settle: the last result of each block is waited for before the clock stops" in text
    assert "nothing to wait for;" not in text


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(2.4, 2.6, "It does."), (4.0, 5.0, "It does not."), (1.0, 2.5, "Nothing yet: it is not settled here. If the ")],
)
def test_what_a_row_teaches_follows_from_its_outcome(low: float, high: float, words: str) -> None:
    claim = replace(BY_ID["M4"], low=2.0, high=3.0, teaches="It does.", otherwise="It does not.")
    reading = Reading(value=(low + high) / 2, low=low, high=high)
    assert judge(claim, reading, basis="live").teaches.startswith(words)
    computed = judge(claim, replace(reading, teaches="By the figures."), basis="live").teaches
    assert (computed == "By the figures.") == (not words.startswith("Nothing"))


def test_every_needed_device_says_whether_traces_can_answer() -> None:
    needing = {name: one for name, one in EXPERIMENTS.items() if one.needs}
    assert [name for name, one in needing.items() if one.traces is None and not one.no_traces] == []


def test_a_median_over_traces_is_not_said_to_be_counted() -> None:
    same = Reading(value=2.5, low=2.5, high=2.5, taken="8 traces")
    rows = [judge(BY_ID["M4"], same, basis=basis) for basis in ("recorded", "live")]
    texts = [render_text(compose(replace(some_report(), rows=(one,))), width=160, color=False) for one in rows]
    assert ["(interval: this one value)" in text for text in texts] == [True, False]


def test_an_end_of_an_interval_that_is_no_bound_does_not_look_like_one() -> None:
    assert "1.9996× to 2.50×" in shown(Reading(value=2.2, low=1.9996, high=2.5))
    assert "2.00× to 2.50×" in shown(Reading(value=2.2, low=2.0, high=2.5))


def test_the_way_that_was_gone_is_told_first() -> None:
    method = METHODS["M2"]
    assert method.told(recorded=True).startswith("From traces: ")
    assert method.told(recorded=False).startswith("Live: ")
    assert METHODS["M1"].told(recorded=True) == METHODS["M1"].how


def test_every_part_is_shown_with_its_interval_its_range_and_its_outcome() -> None:
    parts = (
        Part(name="one", claimed_low=2.0, claimed_high=inf, value=5.0, low=4.0, high=6.0, unit="ratio"),
        Part(name="another", claimed_low=200.0, claimed_high=500.0),
    )
    judged = judge(BY_ID["M4"], Reading(value=2.5, low=2.4, high=2.6, parts=parts), basis="live")
    report = replace(some_report(), rows=(judged,))
    flat = " ".join(render_text(compose(report), width=100, color=False).split())
    assert (
        "Its other figures: one: 5.00× (interval 4.00× to 6.00×), claimed at least 2.00×: holds; another: not " in flat
    )
    assert "another: not measured, claimed 200 to 500 ns: cannot tell." in flat


def test_the_head_of_the_page_leaves_the_shapes_to_the_rows() -> None:
    text = render_text(compose(some_report()), width=100, color=False)
    assert "float32 · shapes: with each claim" in text


def test_contradictions_are_sums_of_the_claims_own_figures() -> None:
    assert "5.5 to 12 µs" in BY_ID["E1"].contradiction
    assert "the rows add to 3.5 to 7 µs, and the total less the launch is 3 to 5 µs." in BY_ID["E1"].contradiction
    assert "4,800 to 14,400" in BY_ID["E4"].contradiction
    assert "5 to 10 µs each take 10 to 50 ms, not 10 to 40" in BY_ID["E4"].contradiction
    assert "0.2 to 0.5 µs each are more than the 0.2 to 0.5 µs" in BY_ID["E10"].contradiction
    assert "three make 0.6 to 1.5 µs" in BY_ID["E10"].contradiction
    assert BY_ID["E1"].low == pytest.approx(3.5 * US)
    assert BY_ID["M5"].low < 0.142 * MS < BY_ID["M5"].high


def test_claims_are_chosen_by_name_in_the_order_of_the_list() -> None:
    assert [claim.id for claim in select(["e2", "M1"])] == ["M1", "E2"]
    assert len(select([])) == len(CLAIMS)
    with pytest.raises(OptionError, match="Q9"):
        select(["Q9"])


def some_report() -> Any:
    pytest.importorskip("torch")
    device = FakeSync()
    experiments = {"M1": Experiment(live=measuring.synchronous), "E6": EXPERIMENTS["E6"]}
    lab = laboratory(device, step=lambda fake: lambda: fake.run(host_ns=5_000, device_ns=95_000))
    return run_lab([BY_ID["M1"], BY_ID["E6"]], lab, experiments=experiments)


def test_a_report_is_saved_loaded_and_shown(tmp_path: Path) -> None:
    report = some_report()
    save(report, tmp_path / "lab.json")
    assert load(tmp_path / "lab.json") == report
    text = render_text(compose(report), width=100, color=False)
    assert "1 of 2 hold" in text
    assert "1 holds, 1 needs a device" in text
    assert "(counted)" in text
    assert "needs a device" in text
    flat = " ".join(text.split())
    assert f"What it teaches: {BY_ID['M1'].teaches}" in flat
    assert f"How: {METHODS['M1'].how} n: " in flat
    assert METHODS["M1"].range_from.rstrip(".") in flat
    assert "Words: settled: the clock was stopped only after" in flat


@pytest.mark.parametrize(
    ("unit", "low", "high", "words"),
    [
        ("operators", 50.0, 150.0, "50 to 150 operators"),
        ("nodes", 0.0, 1.0, "0 nodes to 1 node"),
        ("requests", 1.0, 1.0, "1 request"),
        ("ns", 2_000.0, 4_000.0, "2.00 to 4.00 µs"),
        ("ns", 900.0, 4_000.0, "900 ns to 4.00 µs"),
        ("ratio", 1.5, 2.5, "1.50× to 2.50×"),
        ("kernels", 2.0, None, "at least 2 kernels"),
        ("ns", None, 5.0, "at most 5.00 ns"),
        ("ns", MORE_THAN_NOTHING, None, "more than nothing"),
    ],
)
def test_a_range_is_written_as_one_says_it(unit: str, low: float | None, high: float | None, words: str) -> None:
    from referee.report.lab import claimed_range

    row = replace(some_report().rows[0], unit=unit, claimed_low=low, claimed_high=high)
    assert claimed_range(row) == words


@pytest.mark.parametrize("option", ["--html", "--report"])
def test_the_page_is_written_as_html(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    page, record = tmp_path / "lab.html", tmp_path / "lab.json"
    assert main(["lab", "M9", "--no-progress", option, str(page), "--json", str(record)]) == 0
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert load(record).rows[0].outcome == "holds"  # type: ignore[union-attr]
    assert "M9" in capsys.readouterr().out


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    assert main(["lab", "M9", "--no-progress", "--html", str(tmp_path / "none" / "lab.html")]) == 2


def test_the_list_names_every_claim(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "--list"]) == 0
    out = capsys.readouterr().out
    assert all(claim.id in out for claim in CLAIMS)
