"""One sweep for each combination of other parameters: each stands for itself, and what fails costs itself alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from referee.bench.grid import MOST_SWEEPS, sweep_grid
from referee.bench.plan import Plan
from referee.bench.sweep import Built, sweep
from referee.device.fake import FakeSync
from referee.errors import OptionError
from referee.records.measurement import Sweep
from referee.records.schema import from_json, to_json
from referee.records.sweep_grid import SweepGrid
from referee.report.compose import compose
from referee.report.text import render_text
from referee.units import NS_PER_MS

PLAN = Plan(budget_ns=20 * NS_PER_MS, min_ns=5 * NS_PER_MS, max_blocks=40)
US = 1_000
OTHERS = {"length": [1, 2], "width": ["a", "bb"]}


def one_on(fake: FakeSync, *, fails: Callable[[Mapping[str, Any], int], None] = lambda fixed, batch: None) -> Any:
    def one(fixed: Mapping[str, Any], name: str) -> Sweep:
        def build(batch: int) -> Built:
            fails(fixed, batch)
            cost = US * fixed["length"] * len(fixed["width"]) * (10 + batch)
            return Built(step=lambda: fake.run(host_ns=cost))

        return sweep(build, parameter="batch_size", values=[1, 2, 8, 16], device=fake, plan=PLAN, name=name)

    return one


def grid(fake: FakeSync, **fails: Any) -> SweepGrid:
    return sweep_grid(one_on(fake, **fails), name="step", parameter="batch_size", others=OTHERS)


def test_a_grid_is_one_sweep_for_each_combination() -> None:
    found = grid(FakeSync())
    assert [each.sweep.name for each in found.sweeps] == [
        "step (length=1, width=a)",
        "step (length=1, width=bb)",
        "step (length=2, width=a)",
        "step (length=2, width=bb)",
    ]
    assert dict(found.sweeps[3].fixed) == {"length": 2, "width": "bb"}
    assert found.sweeps[3].sweep.points[0].median_ns == 4 * 11 * US
    assert (found.asked, found.findings) == (4, ())
    assert from_json(to_json(found)) == found


def test_what_a_combination_raises_costs_that_one() -> None:
    def fails(fixed: Mapping[str, Any], batch: int) -> None:
        if fixed["width"] == "bb" and fixed["length"] == 2:
            raise MemoryError("no room")

    found = grid(FakeSync(), fails=fails)
    assert [dict(each.fixed) for each in found.sweeps] == [
        {"length": 1, "width": "a"},
        {"length": 1, "width": "bb"},
        {"length": 2, "width": "a"},
    ]
    (finding,) = found.findings
    assert finding.code == "point-failed"
    assert finding.message == "With length=2, width=bb no value could be measured: MemoryError: no room."


def test_where_every_combination_fails_the_first_error_is_raised() -> None:
    def fails(fixed: Mapping[str, Any], batch: int) -> None:
        raise MemoryError(f"no room at {fixed['length']}{fixed['width']}")

    with pytest.raises(MemoryError, match="no room at 1a"):
        grid(FakeSync(), fails=fails)


@pytest.mark.parametrize(("after", "sweeps"), [(0, None), (4, 1), (6, 2)])
def test_an_interrupt_keeps_the_sweeps_begun(after: int, sweeps: int | None) -> None:
    builds = iter(range(100))

    def fails(fixed: Mapping[str, Any], batch: int) -> None:
        if next(builds) == after:
            raise KeyboardInterrupt

    if sweeps is None:
        with pytest.raises(KeyboardInterrupt):
            grid(FakeSync(), fails=fails)
        return
    found = grid(FakeSync(), fails=fails)
    assert len(found.sweeps) == sweeps
    assert [finding.code for finding in found.findings] == ["interrupted"]


def test_the_page_shows_every_time_and_the_law_of_each() -> None:
    text = render_text(compose(grid(FakeSync())), width=100, color=False)
    assert "4 sweeps over batch_size" in text
    # 1·1·(10+16) µs is 16 items in 26 µs; nothing else handles more.
    assert "at batch_size 16 with length=1, width=a: 26.0 µs a call" in " ".join(text.split())
    for cost in ("11.0 µs", "104 µs"):  # the cheapest, and the dearest: 4·26
        assert cost in text
    assert text.count(" bb ") >= 8


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"batch_size": [1]}, "cannot be varied beside itself"),
        ({"length": [1, 1]}, "must be distinct"),
        ({"length": []}, "must be one"),
        ({"length": list(range(MOST_SWEEPS + 1))}, "65 combinations"),
    ],
)
def test_what_cannot_be_varied_is_refused(others: dict[str, list[int]], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        sweep_grid(one_on(FakeSync()), name="step", parameter="batch_size", others=others)


def test_a_price_is_shown_at_every_point() -> None:
    found = grid(FakeSync())
    page = render_text(compose(found), width=100, color=False)
    assert "Per dollar" not in page
    priced = tuple(
        replace(
            each,
            sweep=replace(
                each.sweep,
                price_per_hour=3.0,
                points=tuple(replace(point, items_per_dollar=227e6) for point in each.sweep.points),
            ),
        )
        for each in found.sweeps
    )
    page = render_text(compose(replace(found, sweeps=priced)), width=80, color=False)
    assert "Per dollar" in page
    assert page.count("227 M") == 16
