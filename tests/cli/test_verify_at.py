"""``verify --at``: a point of a sweep is found however its value is written, and by no other's name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from referee.bench.plan import Plan
from referee.bench.sweep import Built, sweep
from referee.bench.verify import saved_measurement
from referee.device.fake import FakeSync
from referee.errors import OptionError
from referee.records.measurement import Sweep
from referee.units import NS_PER_MS

PLAN = Plan(budget_ns=20 * NS_PER_MS, min_ns=10 * NS_PER_MS, clocks=("settled_amortised",))


def swept(*values: float | str) -> Sweep:
    device = FakeSync()

    def build(value: float | str) -> Built:
        return Built(step=lambda: device.run(host_ns=20_000), items_per_call=1)

    return sweep(build, parameter="size", values=list(values), device=device, plan=PLAN)


@pytest.mark.parametrize("at", ["1048577", "1048577.0", "1.048577e6", " 1048577"])
def test_a_large_value_is_found_as_it_was_written(at: str) -> None:
    record = swept(1048576, 1048577)
    assert saved_measurement(record, path="s.json", at=at) is record.points[1].measurement


@pytest.mark.parametrize("at", ["1.04858e+06", "nan", "", "one", None])
def test_no_other_point_answers_for_it_and_the_hint_names_each(at: str | None) -> None:
    with pytest.raises(OptionError) as raised:
        saved_measurement(swept(1048576, 1048577), path="s.json", at=at)
    assert raised.value.hint == "Name one: --at 1048576 or --at 1048577."


def test_a_value_in_words_is_found_by_its_word_alone() -> None:
    record = swept("float32", "bfloat16")
    assert saved_measurement(record, path="s.json", at="bfloat16") is record.points[1].measurement
    with pytest.raises(OptionError, match="has no point 1"):
        saved_measurement(record, path="s.json", at="1")


def test_a_sweep_that_lost_its_points_has_no_hint() -> None:
    with pytest.raises(OptionError) as raised:
        saved_measurement(replace(swept(1, 2), points=()), path="s.json", at="1")
    assert not raised.value.hint
