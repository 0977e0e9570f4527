"""Wrong use of mixed precision, caught while it runs, and right use left in peace."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.utils.checkpoint")

from referee.precision.watch import ScaleCollapsed, Seen, watch  # noqa: E402

SCALE = 1024.0
"""Low enough for nothing to overflow here, so that every skip is a planted one."""


class Loop:
    """A tiny model, its optimizer and a scaler; each test writes the loop as a user would."""

    def __init__(self, *, lr: float = 0.1, dtype: torch.dtype = torch.float32) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(4, 1).to(dtype)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=1000)
        self.inputs = torch.randn(8, 4, dtype=dtype)

    def loss(self) -> torch.Tensor:
        return self.model(self.inputs).float().square().mean()

    def fp16_loss(self) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            return self.loss()


def codes(run: Callable[[Loop], None], **options: object) -> dict[str, int]:
    with watch() as seen:
        run(Loop(**options))  # type: ignore[arg-type]
    return counted(seen)


def counted(seen: Seen) -> dict[str, int]:
    return {found.code: int(str(found.evidence["times"])) for found in seen.findings}


def right(loop: Loop, steps: int = 3) -> None:
    for _ in range(steps):
        loop.optimizer.zero_grad()
        loop.scaler.scale(loop.fp16_loss()).backward()
        loop.scaler.unscale_(loop.optimizer)
        torch.nn.utils.clip_grad_norm_(loop.model.parameters(), 1.0)
        loop.scaler.step(loop.optimizer)
        loop.scaler.update()


def stepped(loop: Loop, loss: torch.Tensor, **given: Any) -> None:
    loop.optimizer.zero_grad()
    loss.backward(**given)
    loop.optimizer.step()


def test_fp16_without_a_scaler_is_named() -> None:
    loop = Loop()
    with watch() as seen:
        for _ in range(3):
            stepped(loop, loop.fp16_loss())
    (found,) = seen.findings
    assert (found.code, found.evidence["times"]) == ("fp16-without-scaler", 3)
    assert found.evidence["zero_frac"] == 0.0
    assert "0 % of them are zero" in found.message
    assert "GradScaler" in found.hint


@pytest.mark.parametrize(
    "act",
    [
        lambda loop: stepped(loop, loop.fp16_loss() * 128),
        lambda loop: stepped(loop, 128 * loop.fp16_loss() / 4),
        lambda loop: stepped(loop, loop.fp16_loss(), gradient=torch.tensor(128.0)),
        lambda loop: stepped(loop, loop.loss()),
        lambda loop: loop.fp16_loss().backward(),
    ],
    ids=["scaled by hand", "scaled and averaged", "scaled in backward", "float32", "no step"],
)
def test_what_may_be_scaled_or_is_no_fp16_training_is_left_in_peace(act: Callable[[Loop], None]) -> None:
    assert codes(act) == {}


def test_right_use_is_left_in_peace() -> None:
    assert codes(right) == {}


def test_right_use_with_accumulation_and_two_losses() -> None:
    def run(loop: Loop) -> None:
        for _ in range(2):
            loop.optimizer.zero_grad()
            for _ in range(3):
                (loop.scaler.scale(loop.fp16_loss()) / 3).backward()
            total = loop.scaler.scale(loop.fp16_loss()) + loop.scaler.scale(loop.fp16_loss())
            total.backward()
            loop.scaler.step(loop.optimizer)
            loop.scaler.update()

    assert codes(run) == {}


def test_right_use_with_losses_scaled_beforehand_and_keywords() -> None:
    def run(loop: Loop) -> None:
        for _ in range(3):
            loop.optimizer.zero_grad()
            first, second = loop.scaler.scale(loop.fp16_loss()), loop.scaler.scale(loop.fp16_loss())
            first.backward(retain_graph=True)
            first.backward()
            second.backward()
            loop.scaler.unscale_(optimizer=loop.optimizer)
            torch.nn.utils.clip_grad_norm_(parameters=loop.model.parameters(), max_norm=1.0)
            loop.scaler.step(optimizer=loop.optimizer)
            loop.scaler.update()

    assert codes(run) == {}


def test_right_use_with_a_checkpoint_that_goes_backward_within_backward() -> None:
    def run(loop: Loop) -> None:
        for clips in (False, True):
            loop.optimizer.zero_grad()
            inputs = loop.inputs.clone().requires_grad_()
            with torch.autocast("cpu", dtype=torch.float16):
                output = torch.utils.checkpoint.checkpoint(loop.model, inputs, use_reentrant=True)
            loop.scaler.scale(output.float().square().mean()).backward()
            if clips:
                torch.nn.utils.clip_grad_norm_(loop.model.parameters(), 1.0)
            loop.scaler.step(loop.optimizer)
            loop.scaler.update()

    assert codes(run) == {"clip-before-unscale": 1}


def test_the_watch_leaves_nothing_behind() -> None:
    before = (torch.amp.GradScaler.step, torch.autograd.backward, torch.autocast.__enter__, torch.autocast.__init__)
    steps = torch.optim.lr_scheduler.LRScheduler.step
    with watch():
        assert torch.autograd.backward is not before[1]
    after = (torch.amp.GradScaler.step, torch.autograd.backward, torch.autocast.__enter__, torch.autocast.__init__)
    assert after == before
    assert torch.optim.lr_scheduler.LRScheduler.step is steps


def test_the_numbers_are_those_without_the_watch() -> None:
    plain, watched = Loop(), Loop()
    right(plain)
    with watch():
        right(watched)
    assert torch.equal(plain.model.weight, watched.model.weight)


# G03
def test_clipping_scaled_gradients() -> None:
    def update(*, unscale: bool) -> torch.Tensor:
        loop = Loop(lr=1.0)
        before = loop.model.weight.detach().clone()
        loop.scaler.scale(loop.fp16_loss()).backward()
        if unscale:
            loop.scaler.unscale_(loop.optimizer)
        torch.nn.utils.clip_grad_norm_(loop.model.parameters(), 1.0)
        loop.scaler.step(loop.optimizer)
        loop.scaler.update()
        return loop.model.weight.detach() - before

    right_one = update(unscale=True)
    with watch() as seen:
        wrong_one = update(unscale=False)
    (found,) = seen.findings
    # What the finding says of the update is what has become of it.
    shrunk = float(right_one.norm() / wrong_one.norm())
    assert found.evidence["too_small_by"] == pytest.approx(shrunk, rel=1e-3)
    assert shrunk > 100
    assert found.code == "clip-before-unscale"
    assert found.evidence["scale"] == SCALE
    assert str(found.evidence["line"]).startswith("test_watch.py:")
    assert "unscale_" in found.hint


# G04
def test_half_weights_are_named_before_the_scaler_refuses() -> None:
    def run(loop: Loop) -> None:
        loop.scaler.scale(loop.loss()).backward()
        with pytest.raises(ValueError, match="FP16"):
            loop.scaler.step(loop.optimizer)

    with watch() as seen:
        run(Loop(dtype=torch.float16))
    found = next(f for f in seen.findings if f.code == "half-weights")
    assert found.evidence["parameters"] == 2
    assert found.evidence["first"] == "weight"


# G05
def test_a_scaler_with_bf16() -> None:
    def run(loop: Loop) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loop.loss()
        loop.scaler.scale(loss).backward()
        loop.scaler.step(loop.optimizer)
        loop.scaler.update()

    with watch() as seen:
        run(Loop())
    (found,) = seen.findings
    assert found.code == "scaler-for-nothing"
    assert "bf16" in found.message


def test_a_scaler_without_any_autocast_on_the_cpu() -> None:
    def run(loop: Loop) -> None:
        loop.scaler.scale(loop.loss()).backward()
        loop.scaler.step(loop.optimizer)
        loop.scaler.update()

    assert codes(run) == {"scaler-for-nothing": 1}


# G15
def test_the_whole_loop_inside_autocast() -> None:
    def run(loop: Loop) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loop.loss().backward()
            loop.optimizer.step()

    assert codes(run) == {"backward-in-autocast": 1, "loop-in-autocast": 1}


# G19
def test_autocast_without_a_dtype() -> None:
    def run(loop: Loop) -> None:
        for _ in range(2):
            with torch.autocast("cpu"):
                loss = loop.loss()
            loss.backward()
            loop.optimizer.step()

    with watch() as seen:
        run(Loop())
    (found,) = seen.findings
    assert found.code == "autocast-without-dtype"
    assert (found.evidence["default_cpu"], found.evidence["default_cuda"]) == ("bfloat16", "float16")
    assert found.evidence["times"] == 2


@pytest.mark.filterwarnings("ignore")
def test_autocast_without_a_dtype_for_a_device_that_is_not_here() -> None:
    with watch() as seen, torch.autocast("cuda"):
        pass
    assert [f.evidence["dtype"] for f in seen.findings] == ["float16"]


def test_autocast_that_is_off_or_says_its_dtype() -> None:
    with watch() as seen:
        for context in (torch.autocast("cpu", enabled=False), torch.autocast("cpu", torch.bfloat16)):
            with context:
                pass
    assert seen.findings == ()


# G20
def test_unscaling_twice_through_a_wrapper() -> None:
    class Wrapper:
        def __init__(self, inner: torch.optim.Optimizer) -> None:
            self.param_groups = inner.param_groups

    def run(loop: Loop) -> None:
        loop.scaler.scale(loop.fp16_loss()).backward()
        before = loop.model.weight.grad.norm().item()
        loop.scaler.unscale_(Wrapper(loop.optimizer))
        loop.scaler.step(loop.optimizer)
        # What the finding says is what has happened.
        assert loop.model.weight.grad.norm().item() == pytest.approx(before / SCALE**2, rel=1e-3)
        loop.scaler.update()

    with watch() as seen:
        run(Loop())
    (found,) = seen.findings
    assert found.code == "unscaled-twice"
    assert found.evidence["scale"] == SCALE


def test_unscaling_twice_directly() -> None:
    def run(loop: Loop) -> None:
        loop.scaler.scale(loop.fp16_loss()).backward()
        loop.scaler.unscale_(loop.optimizer)
        with pytest.raises(RuntimeError, match="already been called"):
            loop.scaler.unscale_(loop.optimizer)

    assert codes(run) == {"unscaled-twice": 1}


def test_no_update() -> None:
    def run(loop: Loop) -> None:
        loop.scaler.scale(loop.fp16_loss()).backward()
        loop.scaler.step(loop.optimizer)

    assert codes(run) == {"scaler-not-updated": 1}


def test_stepping_again_without_an_update() -> None:
    def run(loop: Loop) -> None:
        for _ in range(2):
            loop.optimizer.zero_grad()
            loop.scaler.scale(loop.fp16_loss()).backward()
            loop.scaler.step(loop.optimizer)

    with watch() as seen, pytest.raises(RuntimeError, match="since the last update"):
        run(Loop())
    assert "scaler-not-updated" in counted(seen)


def test_step_on_a_loss_that_was_not_scaled() -> None:
    def run(loop: Loop) -> None:
        loop.scaler.scale(loop.fp16_loss())
        loop.optimizer.zero_grad()
        loop.fp16_loss().backward()
        # The scaled loss was never the one that backward was called on.
        loop.scaler.step(loop.optimizer)
        loop.scaler.update()

    assert codes(run) == {"loss-not-scaled": 1}


def test_a_plain_step_with_scaled_gradients() -> None:
    def run(loop: Loop) -> None:
        loop.scaler.scale(loop.fp16_loss()).backward()
        loop.optimizer.step()

    assert codes(run) == {"step-with-scaled-gradients": 1}


def overflow(loop: Loop) -> None:
    loop.optimizer.zero_grad()
    loop.scaler.scale(loop.fp16_loss()).backward()
    loop.model.weight.grad.fill_(math.inf)
    loop.scaler.step(loop.optimizer)
    loop.scaler.update()


def test_skipped_steps_and_a_scheduler_that_moves_on() -> None:
    with watch() as seen:
        loop = Loop()
        scheduler = torch.optim.lr_scheduler.StepLR(loop.optimizer, 1)
        right(loop, 1)
        scheduler.step()
        overflow(loop)
        scheduler.step()
        right(loop, 1)
        scheduler.step()
    assert counted(seen) == {"scheduler-on-skipped-step": 1, "steps-skipped": 1}
    assert (seen.skipped, seen.scaler_steps, seen.steps) == (1, 3, 2)


def test_a_low_scale_is_said() -> None:
    with watch() as seen:
        loop = Loop()
        for _ in range(11):
            overflow(loop)
    assert counted(seen)["scale-low"] == 2
    (log,) = seen.scalers.values()
    assert log.scales[-1] == 0.5
    assert seen.skipped == 11


def test_a_collapse_is_announced_before_the_weights_break() -> None:
    announced = []
    loop = Loop()
    loop.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**-147)
    with watch(announce=announced.append) as seen:
        for _ in range(3):
            overflow(loop)
        assert loop.scaler.get_scale() == 0
        assert [f.code for f in announced if f.severity == "fatal"] == ["scale-collapsed"]
        assert torch.isfinite(loop.model.weight).all()
        loop.optimizer.zero_grad()
        loop.scaler.scale(loop.fp16_loss()).backward()
        with pytest.raises(ScaleCollapsed):
            loop.scaler.step(loop.optimizer)
    assert torch.isfinite(loop.model.weight).all()
    assert counted(seen)["scale-collapsed"] == 1


def test_a_collapse_may_only_be_announced() -> None:
    loop = Loop()
    loop.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**-149)
    with watch(on_collapse="announce") as seen:
        overflow(loop)
        for parameter in loop.model.parameters():
            parameter.grad.zero_()
        loop.scaler.step(loop.optimizer)
    assert "scale-collapsed" in counted(seen)
    assert not torch.isfinite(loop.model.weight).all()


def test_a_disabled_scaler_is_none() -> None:
    def run(loop: Loop) -> None:
        loop.scaler = torch.amp.GradScaler("cpu", enabled=False)
        right(loop)

    assert codes(run) == {"fp16-without-scaler": 3}


@pytest.mark.parametrize("updates", [True, False])
def test_one_scaler_for_two_optimizers_is_updated_once(updates: bool) -> None:
    """The documented recipe: step, step, update. Without the update the next iteration's first step tells."""
    torch.manual_seed(0)
    models = [torch.nn.Linear(4, 4) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    x = torch.randn(8, 4)
    with watch() as seen:
        for _ in range(2):
            for model in models:
                model.zero_grad()
                scaler.scale(model(x).square().mean()).backward()
            scaler.unscale_(optimizers[0])
            torch.nn.utils.clip_grad_norm_(models[0].parameters(), 1.0)
            for optimizer in optimizers:
                scaler.step(optimizer)
            if updates:
                scaler.update()
            else:
                scaler._per_optimizer_states.clear()
    found = {finding.code for finding in seen.findings}
    assert ("scaler-not-updated" in found) != updates
    assert "clip-before-unscale" not in found
