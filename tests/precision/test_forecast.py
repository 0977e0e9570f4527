"""Where the scale settles, and what is said while it rises; which window of scales is good, and how sure that is."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

pytest.importorskip("torch")

import torch

from referee.precision.forecast import forecast, highest_clean_scale
from referee.precision.gradients import measure_gradients, report_gradients
from referee.precision.scaler import Policy, over_gradients
from referee.precision.subject import make_subject
from referee.precision.verdict import judge
from referee.records.precision import GradientRange, ScalePoint

from .test_verdict import row


def ranges(
    *, run: dict[int, float], cast_overflows_at: int = 99, low: int | None = 0, high: int | None = 8, note: str = ""
) -> GradientRange:
    """Gradients whose real backwards overflow as ``run`` says, by exponent, and whose cast does from one on."""
    points = tuple(
        ScalePoint(
            exponent=e,
            zero_frac_cast=0.0,
            subnormal_frac=0.0,
            overflow_frac_cast=float(e >= cast_overflows_at),
            zero_frac=0.0 if e in run else None,
            overflow_frac=run.get(e),
        )
        for e in range(41)
    )
    return GradientRange(
        basis="run" if run else "cast",
        elements=10,
        zeros_frac=0.0,
        zero_frac=0.25,
        zero_frac_cast=0.0,
        subnormal_frac=0.0,
        overflow_frac=0.0,
        scale_low=None if low is None else 2.0**low,
        scale_high=None if high is None else 2.0**high,
        loss_frac=0.001,
        zero_frac_bf16=0.0,
        lost_updates_bf16_frac=None,
        scales=points,
        parameters=(),
        binades=(),
        window_note=note,
    )


@pytest.mark.parametrize("limit", [10, 17, 30])
def test_a_rising_scale_is_not_called_steady(limit: int) -> None:
    found = forecast(ranges(run={0: 0.0, limit: 0.0, limit + 1: 0.5}), steps=20_000)
    assert found is not None
    # From 2^16 it doubles nine times in 20,000 steps of which every 2,000th grows.
    assert found.rising is (limit == 30)
    if not found.rising:
        assert found.overflows_at is None
        assert (found.steady_low, found.steady_high) == (2.0**limit, 2.0 ** (limit + 1))


@pytest.mark.parametrize("steps", [20_000, 19_999, 2_001])
@pytest.mark.parametrize(("growth", "interval"), [(2.0, 2000), (1.5, 700)])
def test_the_step_at_which_a_rising_scale_overflows_is_that_of_a_longer_simulation(
    steps: int, growth: float, interval: int
) -> None:
    policy = Policy(growth_factor=growth, growth_interval=interval)
    found = forecast(ranges(run={0: 0.0, 38: 0.0, 39: 1.0}), policy=policy, steps=steps)
    assert found is not None
    assert found.rising
    long = over_gradients([2.0**38], steps=80_000, policy=policy)
    assert found.overflows_at == next(k for k in count() if long.skipped[k])


def test_a_scale_that_can_grow_no_further_never_overflows() -> None:
    found = forecast(ranges(run={0: 0.0, 38: 0.0, 39: 1.0}), policy=Policy(growth_factor=1.0))
    assert found is not None
    assert found.rising
    assert found.overflows_at is None


def test_backwards_that_never_overflowed_do_not_bound_the_scale() -> None:
    """Where the budget allowed scale 1 alone, 1 is not the highest clean scale: the cast knows better."""
    assert highest_clean_scale(ranges(run={0: 0.0}, cast_overflows_at=21)) == 2.0**20
    assert highest_clean_scale(ranges(run={0: 0.0, 16: 0.0, 17: 0.1}, cast_overflows_at=21)) == 2.0**16
    assert highest_clean_scale(ranges(run={}, cast_overflows_at=21)) == 2.0**20


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(0, 0, "1 alone"), (3, 17, "8 to 2^17"), (-4, 0, "2^-4 to 1"), (None, None, "none found")],
)
def test_a_window_in_words(low: int | None, high: int | None, words: str) -> None:
    assert ranges(run={0: 0.0}, low=low, high=high).window_words == words


@pytest.mark.parametrize("answer", ["faster", "slower", "cannot-tell"])
def test_the_window_stands_in_the_three_lines_whatever_the_verdict(answer: str) -> None:
    found = judge(
        timing=(row("float32"), row("bfloat16", answer, 0.5 if answer == "faster" else 1.5)),
        gradients=ranges(run={0: 0.0}, low=3, high=17, note="its edges may lie further out"),
        activations=(),
        autocast=None,
    )
    assert "8 to 2^17" in found.lines[0]
    assert "further out" in found.lines[0]


def test_the_window_of_the_cast_stands_there_too_where_no_backward_ran() -> None:
    cast = replace(ranges(run={}, low=1, high=22), zero_frac=None)
    found = judge(
        timing=(row("float32"), row("bfloat16", "faster", 0.5)), gradients=cast, activations=(), autocast=None
    )
    assert "2 to 2^22" in found.lines[0]
    assert "none was run" in found.lines[0]


def test_a_window_that_was_cut_short_says_so() -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Linear(4, 1), torch.randn(8, 4)
    subject = make_subject(lambda: model(x).square().mean(), device_type="cpu", model=model)
    gradients = measure_gradients(subject)
    asked = iter([True, True])
    cut = report_gradients(subject, gradients, go_on=lambda: next(asked, False))
    whole = report_gradients(subject, gradients)
    assert "only 3 scales were tried" in cut.window_note
    assert whole.window_note == ""
    assert cut.scale_high is not None
    assert whole.scale_high is not None
    assert cut.scale_high <= whole.scale_high


def test_a_window_is_good_throughout() -> None:
    """A bad scale between good ones parts them: the longer stretch is the window."""
    from referee.precision.gradients import _window

    points = [
        ScalePoint(exponent=e, zero_frac_cast=0, subnormal_frac=0, overflow_frac_cast=0, zero_frac=z, overflow_frac=0.0)
        for e, z in ((0, 0.0), (4, 0.5), (8, 0.0), (12, 0.0), (16, 0.0))
    ]
    assert _window(points, loss_frac=0.001, run=True) == (2.0**8, 2.0**16)
