"""What a comparison costs and who gets it: each precision its own, one thread where several are disturbed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from referee.device.fake import FakeSync  # noqa: E402
from referee.precision.control import BF16, FLOAT32, FP16  # noqa: E402
from referee.precision.pays import find_pays_from, measure_points  # noqa: E402
from referee.precision.pilot import Pilot, price_of  # noqa: E402
from referee.precision.rows import timing_rows  # noqa: E402
from referee.precision.subject import Subject, make_subject  # noqa: E402
from referee.precision.timing import Conditions, Timed, time_settings  # noqa: E402
from referee.units import NS_PER_MS, NS_PER_S  # noqa: E402

SETTINGS = (FLOAT32, BF16, FP16)


class Shared(FakeSync):
    """A fake CPU whose cores others take all the time while more than one thread computes."""

    def __init__(self, *, disturbed: bool = False) -> None:
        super().__init__(name="cpu", read_ns=20)
        self.disturbed = disturbed
        self.taken = 0

    def involuntary_switches(self) -> int:
        self.taken += 50 * (self.disturbed and torch.get_num_threads() > 1)
        return self.taken


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def subject_of(device: FakeSync, **ms: float) -> Subject:
    """A step that takes as long as its precision says."""

    def step() -> Any:
        on = torch.is_autocast_enabled("cpu")
        name = str(torch.get_autocast_dtype("cpu")).removeprefix("torch.") if on else "float32"
        return device.run(host_ns=int(ms[name] * NS_PER_MS))

    return make_subject(step, device_type="cpu")


def conditions(device: FakeSync, seconds: float = 40, **options: Any) -> Conditions:
    return Conditions(device=device, until_ns=device.now_ns() + int(seconds * NS_PER_S), **options)


def test_a_slow_precision_takes_no_quads_from_the_others() -> None:
    device = Shared()
    timed = time_settings(
        subject_of(device, float32=27, bfloat16=20, float16=200), SETTINGS, conditions=conditions(device)
    )
    rows = timing_rows(timed, {})
    assert [(row.name, row.answer) for row in rows] == [
        ("float32", "base"),
        ("bfloat16", "faster"),
        ("float16", "slower"),
    ]
    assert [round(row.ratio or 0, 2) for row in rows[1:]] == [0.74, 7.41]
    assert all(pair.clean_quads >= 8 for one in timed.comparisons for pair in one.pairs)
    assert device.now_ns() < 20 * NS_PER_S


@pytest.mark.parametrize("number", [1, 2])
def test_disturbed_threads_are_timed_as_one_and_that_is_said(number: int) -> None:
    device = Shared(disturbed=True)
    with threads(number):
        timed = time_settings(
            subject_of(device, float32=20, bfloat16=30, float16=40), SETTINGS, conditions=conditions(device)
        )
        assert torch.get_num_threads() == number
    assert [one.answer for one in timed.comparisons] == ["slower", "slower"]
    said = [finding for finding in timed.findings if "one thread" in finding.message]
    assert len(said) == (number == 2) == timed.one_thread
    assert timed.provenance.chip["threads"] == 1


def test_threads_left_in_peace_stay() -> None:
    device = Shared()
    with threads(2):
        timed = time_settings(subject_of(device, float32=20, bfloat16=30), SETTINGS[:2], conditions=conditions(device))
    assert not timed.one_thread
    assert timed.findings == ()


def test_what_there_is_no_time_to_answer_is_left_out_with_the_reason() -> None:
    device = Shared()
    given = conditions(device, 25)
    timed = time_settings(
        subject_of(device, float32=100, bfloat16=90, float16=900), SETTINGS, conditions=given, strict=True
    )
    assert [one.answer for one in timed.comparisons] == ["faster"]
    assert "an answer takes" in timed.skipped["float16"]
    row = timing_rows(timed, {})[-1]
    assert (row.answer, row.ratio) == ("cannot-tell", pytest.approx(9, rel=0.01))
    assert row.ci_low is None
    assert device.now_ns() < given.until_ns + NS_PER_S


def test_the_price_is_what_the_quads_take() -> None:
    device = Shared()
    long = price_of(*[Pilot(ns=ns, mean_ns=ns, disturbed=False) for ns in (50_000_000, 100_000_000)], device=device)
    assert long.least_ns == 8 * 3 * 150_000_000
    assert long.budget_ns > long.least_ns
    short = price_of(*[Pilot(ns=1_000, mean_ns=1_000, disturbed=False)] * 2, device=device)
    assert short.budget_ns == NS_PER_S


def test_the_own_batch_size_is_not_timed_again() -> None:
    device = Shared()
    known = time_settings(subject_of(device, float32=20, bfloat16=15), SETTINGS[:2], conditions=conditions(device))
    built = []

    def build(size: int) -> Subject:
        built.append(size)
        return subject_of(device, float32=20, bfloat16=30 if size < 8 else 10)

    points = measure_points(build, SETTINGS[:2], sizes=(1, 8, 64), conditions=conditions(device), known={8: known})
    assert built == [1, 64]
    (found,) = find_pays_from(points, ["bfloat16"])
    assert found.batch_size == 8
    assert [size for size, *_ in found.points] == [1, 8, 64]


def test_sizes_that_there_is_no_time_for_are_named() -> None:
    device = Shared()
    late = conditions(device, 0)
    (found,) = find_pays_from(
        measure_points(
            lambda size: pytest.fail("built"), SETTINGS[:2], sizes=(4,), conditions=late, known={8: Timed()}
        ),
        ["bfloat16"],
    )
    assert "4 not timed: the --budget was used up" in found.why_not


# G16
def test_casting_weights_every_step_pays_only_from_a_larger_batch() -> None:
    """Half the time for each item, and 20 ms of casts whatever the batch: even at 40."""
    device = Shared()

    def build(size: int) -> Subject:
        return subject_of(device, float32=size, bfloat16=20 + size / 2)

    points = measure_points(build, SETTINGS[:2], sizes=(64, 16, 32), conditions=conditions(device))
    (found,) = find_pays_from(points, ["bfloat16"])
    assert found.batch_size == 64
    assert [(size, round(ratio or 0, 2)) for size, ratio, *_ in found.points] == [(16, 1.75), (32, 1.12), (64, 0.81)]
    at_16 = time_settings(build(16), SETTINGS[:2], conditions=conditions(device))
    row = timing_rows(at_16, {}, audited="bfloat16", casts_ns=20e6)[1]
    assert row.answer == "slower"
    # What the casts cost is told apart from what the rest gains.
    assert row.kernel_gain_ns == pytest.approx(8e6, rel=0.01)
    assert row.median_ns == pytest.approx(28e6, rel=0.01)
