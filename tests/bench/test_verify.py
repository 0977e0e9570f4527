from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from referee.bench.follows import broken_figures
from referee.bench.measure import measure
from referee.bench.plan import Plan
from referee.bench.verify import (
    cache_of,
    device_of,
    parameters_of,
    plan_of,
    setup_of,
    target_of,
    threads_of,
    verify,
)
from referee.device.fake import FakeSync
from referee.device.noise import AR1, Slowdown, VirtualClock
from referee.errors import UserError
from referee.records.measurement import Measurement
from referee.records.provenance import NOT_READ, TensorSpec
from referee.records.schema import from_json, to_json
from referee.units import NS_PER_MS

PLAN = Plan(budget_ns=60 * NS_PER_MS, min_ns=20 * NS_PER_MS, clocks=("settled_amortised",))


def run(device_ns: int = 20_000, *, device: FakeSync | None = None, **switches: str) -> Measurement:
    fake = device or FakeSync(noise=[AR1(phi=0.3, sigma_ns=100, seed=1)])
    step = lambda: fake.run(host_ns=5_000, device_ns=device_ns)  # noqa: E731
    return measure(step, device=fake, plan=PLAN, switches=switches)


def test_the_same_step_is_reproduced() -> None:
    found = verify(run(), run())
    assert found.answer == "reproduced"
    assert found.ratio == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("device_ns", [30_000, 12_000])
def test_another_time_in_either_direction_is_not(device_ns: int) -> None:
    found = verify(run(), run(device_ns))
    assert found.answer == "not-reproduced"
    assert found.ratio == pytest.approx((5_000 + device_ns) / 25_000, rel=0.01)


def test_other_conditions_are_not_comparable_and_named() -> None:
    found = verify(run(grad_mode="grad"), run(grad_mode="no_grad"))
    assert found.answer == "not-comparable"
    assert [d.path for d in found.differences] == ["switches.grad_mode"]
    assert "no_grad here" in found.why
    assert (
        verify(run(grad_mode="grad"), run(grad_mode="no_grad"), ignoring=["switches.grad_mode"]).answer == "reproduced"
    )


def test_another_chip_is_not_comparable() -> None:
    saved = run()
    chip = {**saved.provenance.chip, "model": "Another CPU"}
    elsewhere = replace(saved, provenance=replace(saved.provenance, chip=chip))
    found = verify(elsewhere, run())
    assert found.answer == "not-comparable"
    assert "chip.model" in found.why


def test_what_an_old_file_does_not_state_is_not_held_against_it() -> None:
    saved = run()
    chip = {**saved.provenance.chip, "model": NOT_READ}
    assert verify(replace(saved, provenance=replace(saved.provenance, chip=chip)), run()).answer == "reproduced"


def test_a_disturbed_rerun_that_is_somewhat_off_cannot_tell() -> None:
    slow = Slowdown(start_ns=22 * NS_PER_MS, end_ns=10**12, percent=110)
    again = run(device=FakeSync(clock=VirtualClock(slowdowns=[slow]), noise=[AR1(phi=0.9, sigma_ns=2_000, seed=3)]))
    assert any(f.code == "disturbed" for f in again.findings)
    assert verify(run(), again).answer == "cannot-tell"


def test_a_measurement_without_headline_cannot_tell() -> None:
    saved = replace(run(), median_ns=None, floor_ns=None, ci_low_ns=None, ci_high_ns=None)
    found = verify(saved, run())
    assert found.answer == "cannot-tell"
    assert "no headline" in found.why


def test_the_plan_is_taken_from_the_saved_provenance() -> None:
    saved = run()
    plan = plan_of(saved)
    assert plan.budget_ns == PLAN.budget_ns
    assert plan.block_target_ns == FakeSync().block_target_ns
    assert plan.min_ns <= plan.budget_ns


def test_a_file_that_names_no_target_cannot_be_run_again() -> None:
    with pytest.raises(UserError, match="does not say what was measured"):
        target_of(run())


def test_a_verification_survives_saving_and_loading() -> None:
    found = verify(run(), run())
    assert from_json(to_json(found)) == found


def test_the_parameters_of_the_target_are_kept_for_the_rerun() -> None:
    @dataclass(frozen=True)
    class Named:
        name: str = "step.py:train"
        source_file: str | None = None
        values: Mapping[str, object] = field(default_factory=lambda: {"batch_size": 8, "dtype": "float32"})

    fake = FakeSync()
    saved = measure(lambda: fake.run(host_ns=5_000), device=fake, plan=PLAN, target=Named())
    assert target_of(saved) == "step.py:train"
    assert parameters_of(saved) == {"batch_size": "8", "dtype": "float32"}
    assert parameters_of(run()) == {}


def test_parameters_that_cannot_be_read_are_one_sentence() -> None:
    saved = run()
    method = {**saved.provenance.method, "parameters": "{not json"}
    with pytest.raises(UserError, match="cannot be read"):
        parameters_of(replace(saved, provenance=replace(saved.provenance, method=method)))


def test_the_device_is_restored_although_the_target_declares_none() -> None:
    saved = run()
    assert device_of(saved) == "cpu"
    spec = TensorSpec(role="input", shape=(4,), stride=(1,), dtype="float32", device="lazy")
    shapes = (replace(spec, device="cpu", role="parameter"), spec)
    elsewhere = replace(saved, provenance=replace(saved.provenance, shapes=shapes))
    assert device_of(elsewhere) == "lazy"
    told = {**saved.provenance.method, "parameters": '{"device": "cuda:1"}'}
    assert device_of(replace(elsewhere, provenance=replace(elsewhere.provenance, method=told))) == "cuda:1"


@pytest.mark.parametrize("figure", ["median_ns", "ci_low_ns", "ci_high_ns", "floor_ns", "p95_ns", "iqr_ns"])
def test_a_figure_that_does_not_follow_from_the_samples_is_not_comparable(figure: str) -> None:
    saved = run()
    assert broken_figures(saved) == ()
    value = getattr(saved, figure)
    edited = replace(saved, **{figure: value / 2 if value else 1.0})
    found = verify(edited, run())
    assert found.answer == "not-comparable"
    assert figure in found.why


def test_edited_samples_do_not_hide_behind_their_figures() -> None:
    saved = run()
    halved = replace(saved, samples_ns=tuple(ns / 2 for ns in saved.samples_ns))
    assert verify(halved, run()).answer == "not-comparable"
    fewer = replace(saved, samples_ns=saved.samples_ns[1:])
    assert verify(fewer, run()).answer == "not-comparable"
    miscounted = replace(saved, n=saved.n - 1)
    assert "are said to count" in verify(miscounted, run()).why


@pytest.mark.parametrize("level", [0.0, 1.0, 2.0])
def test_a_level_that_is_none_is_named(level: float) -> None:
    assert "is no level" in verify(replace(run(), ci_level=level), run()).why


def test_samples_beyond_all_time_are_named() -> None:
    saved = run()
    endless = replace(saved, samples_ns=(1e308,) * len(saved.samples_ns))
    assert "a sample is no time" in verify(endless, run()).why


def test_a_ratio_of_times_has_no_end_below_zero() -> None:
    saved = run()
    assert saved.median_ns is not None
    wide = replace(saved, ci_low_ns=saved.median_ns / 10, ci_high_ns=40 * saved.median_ns)
    assert verify(wide, wide).ci_low == 0.0


def test_a_floor_without_a_headline_is_not_believed() -> None:
    saved = replace(run(), median_ns=None, ci_low_ns=None, ci_high_ns=None)
    assert "floor_ns" in verify(saved, run()).why


def stating(saved: Measurement, section: str, **values: object) -> Measurement:
    """The measurement as if its provenance stated these values."""
    told = {**getattr(saved.provenance, section), **values}
    return replace(saved, provenance=replace(saved.provenance, **{section: told}))


@pytest.mark.parametrize(
    ("stated", "wanted"),
    [("warm", "warm"), ("flushed (32.0 MiB cache)", "flushed"), ("rotated over 5 copies", "rotated")],
)
def test_the_state_of_the_caches_is_had_again(stated: str, wanted: str) -> None:
    assert cache_of(stating(run(), "method", cache_state=stated)) == wanted


def test_a_statement_is_known_by_its_setup() -> None:
    assert setup_of(run()) is None
    assert setup_of(stating(run(), "method", setup="")) == ""


@pytest.mark.parametrize("threads", [0, -1, "two", NOT_READ])
def test_threads_that_are_no_number_of_threads_are_not_set(threads: object) -> None:
    assert threads_of(stating(run(), "chip", threads=threads)) is None
    assert threads_of(stating(run(), "chip", threads=3)) == 3


def test_a_plan_that_would_not_end_is_not_followed() -> None:
    with pytest.raises(UserError, match="more than a day"):
        plan_of(stating(run(), "method", budget_ns=10**18))
    assert plan_of(stating(run(), "method", block_target_ns=10**15)).block_target_ns is None


def test_a_side_without_an_accelerator_is_not_comparable_with_one_that_has_one() -> None:
    saved = run()
    there = replace(saved, provenance=replace(saved.provenance, accelerator={"name": "An accelerator"}))
    assert verify(there, run()).why.endswith("(accelerator.name: An accelerator then, none, the CPU alone here)")
    assert verify(there, run(), ignoring=["accelerator"]).answer == "reproduced"
    unnamed = replace(saved, provenance=replace(saved.provenance, accelerator={}))
    assert verify(unnamed, run()).answer == "not-comparable"


def test_code_that_was_edited_is_told_whatever_the_answer() -> None:
    saved, again = stating(run(), "software", source_digest="1"), stating(run(), "software", source_digest="2")
    found = verify(saved, again)
    assert found.answer == "reproduced"
    assert "edited since" in found.why
    slower = stating(run(40_000), "software", source_digest="1", git_commit="b")
    assert "another commit" in verify(stating(saved, "software", git_commit="a"), slower).why
    assert "since" not in verify(saved, saved).why


def test_too_few_samples_do_not_contradict_unless_far_off() -> None:
    device = FakeSync()
    few = Plan(budget_ns=15 * NS_PER_MS, min_ns=NS_PER_MS, clocks=("settled_amortised",))

    def long(percent: int) -> Measurement:
        return measure(lambda: device.run(host_ns=0, device_ns=50_000 * percent), device=device, plan=few)

    assert verify(long(100), long(102)).answer == "reproduced"
    found = verify(long(100), long(108))
    assert found.answer == "cannot-tell"
    assert "few-samples then, few-samples here" in found.why
    assert verify(long(100), long(200)).answer == "not-reproduced"
