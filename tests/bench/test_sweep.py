from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from referee.bench.plan import Plan, Progress
from referee.bench.sweep import Built, sweep
from referee.device.fake import FakeAsync, FakeOutput, FakeSync
from referee.errors import OptionError
from referee.records.provenance import TensorSpec
from referee.units import NS_PER_MS, NS_PER_S

US = 1_000
PLAN = Plan(budget_ns=30 * NS_PER_MS, min_ns=10 * NS_PER_MS, clocks=("settled_amortised",))
VALUES = [1, 2, 4, 8, 16, 32, 64, 128]


def test_an_asynchronous_device_obeys_the_max_law() -> None:
    fake = FakeAsync()

    def build(value: float) -> Built:
        return Built(step=lambda: fake.run(host_ns=100 * US, device_ns=20 * US + int(5 * US * value)))

    found = sweep(build, parameter="batch_size", values=VALUES, device=fake, plan=PLAN)
    assert found.fit.law == "max"
    assert found.fit.host_ns == pytest.approx(100 * US, rel=0.06)  # draining the queue once per block is in it
    assert found.fit.knee == pytest.approx(16, rel=0.1)
    assert found.findings == ()


def test_a_synchronous_device_obeys_the_sum_law() -> None:
    fake = FakeSync()

    def build(value: float) -> Built:
        return Built(step=lambda: fake.run(host_ns=100 * US, device_ns=int(5 * US * value)))

    found = sweep(build, parameter="batch_size", values=[8, 1, 64, 4, 128, 2, 32, 16], device=fake, plan=PLAN)
    assert found.fit.law == "sum"
    assert found.fit.knee == pytest.approx(20)
    assert [p.value for p in found.points] == VALUES
    for point in found.points:
        assert point.median_ns == 100 * US + 5 * US * point.value
        assert point.throughput_per_s == pytest.approx(point.value * NS_PER_S / point.median_ns)


def test_one_value_is_not_a_benchmark() -> None:
    fake = FakeSync()
    found = sweep(
        lambda _: Built(step=lambda: fake.run(host_ns=US)), parameter="batch_size", values=[8], device=fake, plan=PLAN
    )
    assert [f.code for f in found.findings] == ["one-batch-size"]
    assert found.fit.law == "none"


def test_items_per_call_may_differ_from_the_value() -> None:
    fake = FakeSync()
    found = sweep(
        lambda _: Built(step=lambda: fake.run(host_ns=10 * US), items_per_call=32),
        parameter="threads",
        values=[1, 2],
        device=fake,
        plan=PLAN,
    )
    assert found.points[0].throughput_per_s == pytest.approx(32 * NS_PER_S / (10 * US))


@pytest.mark.parametrize("values", [[], [1, 1], [0, 1], [-2, 1]])
def test_values_that_make_no_sweep_are_refused(values: list[float]) -> None:
    with pytest.raises(OptionError):
        sweep(lambda _: Built(step=lambda: None), parameter="batch_size", values=values, device=FakeSync())


def test_an_interrupt_keeps_the_points_that_were_complete() -> None:
    fake = FakeSync()

    def build(value: float) -> Built:
        if value == 4:
            raise KeyboardInterrupt
        return Built(step=lambda: fake.run(host_ns=10 * US))

    found = sweep(build, parameter="batch_size", values=[1, 2, 4, 8], device=fake, plan=PLAN)
    assert [p.value for p in found.points] == [1, 2]
    assert "interrupted" in [f.code for f in found.findings]


def test_an_interrupt_before_any_point_is_passed_on() -> None:
    def build(_: float) -> Built:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(build, parameter="batch_size", values=[1, 2], device=FakeSync(), plan=PLAN)


def test_an_interrupt_inside_a_point_ends_the_sweep_with_it() -> None:
    fake = FakeSync()
    calls = {"left": 2_000}

    def step() -> FakeOutput:
        calls["left"] -= 1
        if not calls["left"]:
            raise KeyboardInterrupt
        return fake.run(host_ns=10 * US)

    found = sweep(lambda _: Built(step=step), parameter="batch_size", values=[1, 2, 4, 8], device=fake, plan=PLAN)
    assert len(found.points) < 4
    assert "interrupted" in [f.code for f in found.findings]


def test_what_a_later_value_raises_is_a_finding_and_the_others_stand() -> None:
    fake = FakeSync()

    def build(value: float) -> Built:
        if value == 4:
            raise MemoryError("16 GiB are not there")
        return Built(step=lambda: fake.run(host_ns=10 * US, device_ns=int(US * value)))

    found = sweep(build, parameter="batch_size", values=[1, 2, 4, 8], device=fake, plan=PLAN)
    assert [(p.value, p.median_ns) for p in found.points] == [(1, 11 * US), (2, 12 * US), (8, 18 * US)]
    failed = next(f for f in found.findings if f.code == "point-failed")
    assert failed.evidence == {"value": 4, "error": "MemoryError"}
    assert "batch_size=4 could not be measured: MemoryError: 16 GiB are not there." in failed.message


def test_where_no_value_can_be_measured_the_first_error_is_raised() -> None:
    def build(value: float) -> Built:
        raise ValueError(f"no {value}")

    with pytest.raises(ValueError, match="no 1"):
        sweep(build, parameter="batch_size", values=[1, 2], device=FakeSync(), plan=PLAN)


def test_progress_covers_the_whole_sweep() -> None:
    seen: list[Progress] = []
    fake = FakeSync()
    sweep(
        lambda _: Built(step=lambda: fake.run(host_ns=10 * US)),
        parameter="batch_size",
        values=[1, 2],
        device=fake,
        plan=PLAN,
        progress=seen.append,
    )
    assert any("batch_size=1" in p.stage for p in seen)
    assert max(p.frac for p in seen if "batch_size=1" in p.stage) <= 0.5
    assert min(p.frac for p in seen if "batch_size=2" in p.stage) >= 0.5


def test_a_price_gives_items_per_dollar_at_the_served_value() -> None:
    fake = FakeSync()
    found = sweep(
        lambda value: Built(step=lambda: fake.run(host_ns=100 * US, device_ns=int(10 * US * value))),
        parameter="batch_size",
        values=[1, 2, 4, 8],
        device=fake,
        plan=PLAN,
        price_per_hour=3.6,
        served=4,
    )
    point = found.points[2]
    # 4 items in 140 µs at 0.1 cent a second.
    assert point.items_per_dollar == pytest.approx(4 / 140e-6 / 0.001)
    assert (found.price_per_hour, found.served) == (3.6, 4)


@pytest.mark.parametrize("options", [{"price_per_hour": 0}, {"served": 3}])
def test_prices_and_served_values_that_make_no_sense_are_refused(options: dict[str, float]) -> None:
    fake = FakeSync()
    with pytest.raises(OptionError):
        sweep(
            lambda _: Built(step=lambda: fake.run(host_ns=US)),
            parameter="batch_size",
            values=[1, 2],
            device=fake,
            plan=PLAN,
            **options,  # type: ignore[arg-type]
        )


def test_words_can_be_swept_and_are_not_fitted() -> None:
    fake = FakeSync()
    cost = {"float32": 40 * US, "bfloat16": 20 * US}
    found = sweep(
        lambda value: Built(step=lambda: fake.run(host_ns=cost[value])),
        parameter="dtype",
        values=["float32", "bfloat16"],
        device=fake,
        plan=PLAN,
    )
    assert [(p.label, p.median_ns) for p in found.points] == [("float32", 40 * US), ("bfloat16", 20 * US)]
    assert found.fit.law == "none"
    assert "not numbers" in found.fit.why_no_knee
    assert found.findings == ()


def test_a_time_that_does_not_grow_with_the_work_is_remarked() -> None:
    fake = FakeSync()
    found = sweep(
        lambda _: Built(step=lambda: fake.run(host_ns=20 * US)),
        parameter="batch_size",
        values=[1, 4, 16, 64],
        device=fake,
        plan=PLAN,
    )
    assert "flat-in-work" in [f.code for f in found.findings]


@dataclass(frozen=True)
class Watched:
    """What was seen of a step: one input of some rows, and its operators."""

    rows: int = 8
    dtype: str = "float32"
    ops: Mapping[str, int] = field(default_factory=lambda: {"aten::mm": 1})

    @property
    def shapes(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec(role="input", shape=(self.rows, 8), stride=(8, 1), dtype=self.dtype, device="cpu"),)


def codes_of(*, rows: bool = False, ops: bool = False, us: bool = False, watched: bool = True) -> set[str]:
    """A sweep in which the rows, the operators or the time grow with the value, or none of them."""
    fake = FakeSync()

    def build(value: int) -> Built:
        seen = Watched(rows=value if rows else 8, ops={"aten::mm": value if ops else 1})
        step_us = 10 * (value if us else 1) * US
        return Built(step=lambda: fake.run(host_ns=step_us), observation=seen if watched else None)

    found = sweep(build, parameter="batch_size", values=[1, 2, 4, 8], device=fake, plan=PLAN)
    return {f.code for f in found.findings}


def test_a_parameter_on_which_nothing_depends_is_told() -> None:
    assert "parameter-unused" in codes_of()
    assert "parameter-unused" not in codes_of(rows=True)
    assert "parameter-unused" not in codes_of(ops=True)
    assert "parameter-unused" not in codes_of(us=True)
    assert "parameter-unused" not in codes_of(watched=False)
