"""The whole advisor on small steps: what is put back, what is found, and what is never done to the user's step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from referee.device.registry import open_device  # noqa: E402
from referee.precision.accuracy import float64_pass  # noqa: E402
from referee.precision.activations import measure_activations  # noqa: E402
from referee.precision.advise import advise  # noqa: E402
from referee.precision.audit import audit  # noqa: E402
from referee.precision.control import BF16, FLOAT32, FP16, Control, Setting, own_scaler  # noqa: E402
from referee.precision.elsewhere import record_elsewhere  # noqa: E402
from referee.precision.findings import watch_step  # noqa: E402
from referee.precision.gradients import compare_passes, measure_gradients, report_gradients  # noqa: E402
from referee.precision.passes import run_pass  # noqa: E402
from referee.precision.policy import policies  # noqa: E402
from referee.precision.subject import Subject, make_subject, restored  # noqa: E402
from referee.precision.timing import in_setting, settings_for  # noqa: E402
from referee.precision.updates import count_lost_updates  # noqa: E402
from referee.precision.waits import count_scaler_waits  # noqa: E402
from referee.records.precision import GradientRange  # noqa: E402

from .models import Step, subject_of, training  # noqa: E402


def state(model: Any, optimizer: Any) -> tuple[Any, ...]:
    return (
        {k: v.clone() for k, v in model.state_dict().items()},
        copy.deepcopy(optimizer.state_dict()),
        [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        torch.get_rng_state(),
    )


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b) and a.dtype == b.dtype
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


QUESTIONS: dict[str, Callable[[Subject], object]] = {
    "a pass": lambda s: run_pass(s, FP16),
    "float64": float64_pass,
    "audit": lambda s: audit(s, BF16, policies=policies("cpu")),
    "elsewhere": lambda s: record_elsewhere(s, "cuda", "bfloat16"),
    "activations": measure_activations,
    "lost updates": count_lost_updates,
    "wrong use": watch_step,
    "scaler waits": count_scaler_waits,
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "trained"])
def test_every_question_puts_everything_back(question: str, fresh: bool) -> None:
    step, model, optimizer = made = training()
    if not fresh:
        step()
        step()
    before = state(model, optimizer)
    objects = [id(p) for p in model.parameters()]
    QUESTIONS[question](subject_of(made))
    assert same(before, state(model, optimizer))
    assert objects == [id(p) for p in model.parameters()]
    # And the step goes on as if nothing had been asked.
    twin_step, twin_model, twin_optimizer = training()
    for _ in range(0 if fresh else 2):
        twin_step()
    torch.set_rng_state(before[3])
    step()
    torch.set_rng_state(before[3])
    twin_step()
    assert same(state(model, optimizer)[0], state(twin_model, twin_optimizer)[0])


def test_nothing_of_torch_stays_replaced() -> None:
    watched = (torch.autograd.backward, torch.autocast.__enter__, torch.amp.GradScaler.step, torch.Tensor.contiguous)
    for ask in QUESTIONS.values():
        ask(subject_of(training()))
    after = (torch.autograd.backward, torch.autocast.__enter__, torch.amp.GradScaler.step, torch.Tensor.contiguous)
    assert after == watched
    assert "_enabled" not in vars(torch.amp.GradScaler)
    assert not torch.is_autocast_enabled("cpu")
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("options", [{"returns_loss": True}, {"scaler": True}], ids=["returns the loss", "own scaler"])
def test_gradients_do_not_depend_on_how_the_step_is_written(options: dict[str, bool]) -> None:
    plain = run_pass(subject_of(training()), FLOAT32)
    other = run_pass(subject_of(training(**options)), FLOAT32)
    assert same(plain.gradients, other.gradients)
    assert same(plain.losses, other.losses)


def test_a_steps_own_autocast_is_taken_over_where_it_stands() -> None:
    own = subject_of(training(own_autocast=True), own_sites=True)
    plain = subject_of(training())
    assert same(run_pass(own, FLOAT32).gradients, run_pass(plain, FLOAT32).gradients)
    assert same(run_pass(own, FP16).gradients, run_pass(plain, FP16).gradients)
    assert not same(run_pass(own, FP16).gradients, run_pass(plain, FLOAT32).gradients)


def test_the_loss_scale_multiplies_the_gradients_exactly() -> None:
    subject = subject_of(training())
    one = run_pass(subject, FLOAT32)
    scaled = run_pass(subject, Setting(name="scaled", scale=2.0**10))
    assert all(torch.equal(scaled.gradients[k], g * 2.0**10) for k, g in one.gradients.items())


def test_the_loss_scale_multiplies_once_through_a_checkpoint_and_a_mode() -> None:
    """A checkpoint calls backward within backward; a mode calls it once more: neither is another loss."""
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)), torch.randn(8, 4, requires_grad=True)
    subject = subject_of((lambda: checkpoint(model, x, use_reentrant=True).square().mean(), model, None))
    plain = run_pass(subject, Setting(name="float32"))
    scaled = run_pass(subject, Setting(name="float32", scale=8.0))
    assert plain.gradients.keys() == scaled.gradients.keys()
    for name, gradient in plain.gradients.items():
        assert torch.equal(8 * gradient, scaled.gradients[name])
    recorded = audit(subject, BF16, policies=policies("cpu"))
    assert len(recorded.tape.losses) == 1


def test_gradients_are_read_before_the_step_clips_them() -> None:
    torch.manual_seed(0)
    model, inputs = nn.Linear(4, 1), torch.randn(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        optimizer.step()
        return loss.detach()

    subject = subject_of((step, model, optimizer))
    plain = run_pass(subject, FLOAT32).gradients
    scaled = run_pass(subject, Setting(name="scaled", scale=2.0**10)).gradients
    assert float(plain["weight"].norm()) > 0.1
    assert all(torch.equal(scaled[k], g * 2.0**10) for k, g in plain.items())


def test_leaves_are_trained_without_a_model_or_an_optimizer() -> None:
    torch.manual_seed(0)
    first, second, inputs = (
        torch.randn(4, 4, requires_grad=True),
        torch.randn(4, 4, requires_grad=True),
        torch.ones(2, 4),
    )
    subject = make_subject(lambda: (inputs @ first @ second).sum(), device_type="cpu")
    gradients = run_pass(subject, FLOAT32).gradients
    assert len(gradients) == 2
    assert all("(4, 4)" in name for name in gradients)
    assert first.grad is None


def test_backward_runs_outside_of_autocast() -> None:
    seen = []
    step, model, _ = training()
    model[0].weight.register_hook(lambda g: seen.append(torch.is_autocast_enabled("cpu")))
    model[0].register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))
    run_pass(subject_of((step, model, None)), BF16)
    assert seen == [True, False]


def test_a_step_under_a_scaler_is_the_users_own_loop_with_one() -> None:
    made, twin = training(), training()
    scaler = own_scaler("cpu", init_scale=1024.0)
    control = Control(FP16, device_type="cpu", own_sites=False, scaler=scaler)
    _, model, optimizer = twin
    real = torch.amp.GradScaler("cpu", init_scale=1024.0)
    # The twin's own loop, written out by hand.
    inputs, targets = (t for t in subject_of(twin).tensors)
    for seed in range(3):
        torch.manual_seed(seed)
        control.call(made[0])
        torch.manual_seed(seed)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(inputs), targets)
        real.scale(loss).backward()
        real.step(optimizer)
        real.update()
    assert same(state(made[1], made[2])[0], state(model, optimizer)[0])
    assert scaler.get_scale() == real.get_scale()


def test_a_skipped_step_leaves_the_weights() -> None:
    step, model, _ = training()
    before = {k: v.clone() for k, v in model.named_parameters()}
    scaler = own_scaler("cpu", init_scale=2.0**120)
    Control(FP16, device_type="cpu", own_sites=False, scaler=scaler).call(step)
    assert all(torch.equal(before[k], v) for k, v in model.named_parameters())
    assert scaler.get_scale() == 2.0**119


# Gradient ranges ----------------------------------------------------------------------------------------------------


def sigmoids() -> tuple[Step, Any, None]:
    """A small loss through two sigmoids: gradients vanish on the way down, not only at the end."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.Sigmoid(), nn.Linear(64, 64), nn.Sigmoid(), nn.Linear(64, 8))
    inputs = torch.randn(16, 32)

    def step() -> torch.Tensor:
        model.zero_grad(set_to_none=True)
        loss = 1e-4 * model(inputs).float().square().mean()
        loss.backward()
        return loss.detach()

    return step, model, None


@pytest.fixture(scope="module")
def vanishing() -> GradientRange:
    subject = subject_of(sigmoids())
    return report_gradients(subject, measure_gradients(subject))


# G06
def test_a_real_backward_loses_more_than_the_cast_and_both_are_reported(vanishing: GradientRange) -> None:
    assert vanishing.basis == "run"
    assert vanishing.zero_frac is not None
    assert vanishing.zero_frac > 2 * vanishing.zero_frac_cast > 0
    assert vanishing.zero_frac_bf16 == 0


def test_vanishing_falls_with_the_scale_and_the_window_begins_where_it_is_small(vanishing: GradientRange) -> None:
    run = [(p.exponent, p.zero_frac) for p in vanishing.scales if p.zero_frac is not None]
    fracs = [frac for _, frac in run]
    assert fracs == sorted(fracs, reverse=True)
    assert vanishing.scale_low is not None
    assert vanishing.scale_high is not None
    below = [frac for exponent, frac in run if 2.0**exponent < vanishing.scale_low]
    assert all(frac > vanishing.loss_frac for frac in below)
    assert vanishing.scale_low > 1


def test_run_counts_are_those_of_a_backward_done_by_hand() -> None:
    step, model, _ = sigmoids()
    subject = subject_of((step, model, None))
    exact, low = run_pass(subject, FLOAT32), run_pass(subject, FP16)
    loss = compare_passes(exact, low)
    step()
    plain = [p.grad.clone() for p in model.parameters()]
    with torch.autocast("cpu", dtype=torch.float16):
        inputs = subject.tensors[0]
        model.zero_grad()
        value = 1e-4 * model(inputs).float().square().mean()
    value.backward()
    by_hand = sum(int(((a != 0) & (p.grad == 0)).sum()) for a, p in zip(plain, model.parameters(), strict=True))
    assert sum(loss.vanished.values()) == by_hand > 0


def test_layers_are_the_sums_of_their_parameters(vanishing: GradientRange) -> None:
    assert [layer.name for layer in vanishing.layers] == ["0", "2", "4"]
    assert sum(layer.elements for layer in vanishing.layers) == vanishing.elements
    lost = sum((layer.zero_frac or 0.0) * layer.elements for layer in vanishing.layers)
    assert lost == pytest.approx((vanishing.zero_frac or 0.0) * vanishing.elements)
    first = [p for p in vanishing.parameters if p.name.startswith("0.")]
    assert vanishing.layers[0].largest == max(p.largest for p in first)


def test_gradients_that_float32_has_as_zeros_are_no_underflow() -> None:
    model = nn.Linear(4, 2)
    inputs = torch.tensor([[1.0, 0.0, 2.0, 0.0]])
    step = lambda: model(inputs).sum()  # noqa: E731
    subject = subject_of((step, model, None))
    found = report_gradients(subject, measure_gradients(subject))
    assert found.zeros_frac == pytest.approx(4 / 10)
    assert found.zero_frac == found.zero_frac_cast == 0


def test_lost_updates_are_counted_for_the_optimizers_own_step() -> None:
    torch.manual_seed(0)
    model = nn.Linear(64, 64, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    inputs = torch.randn(8, 64)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    lost = count_lost_updates(subject_of((step, model, optimizer)))
    before = model.weight.detach().clone()
    step()
    update = model.weight.detach().double() - before.double()
    held = before.bfloat16().double()
    kept = (held + update).to(torch.bfloat16).double() == held
    assert lost == {"weight": int((kept & (update != 0)).sum())}
    assert lost["weight"] > 0


# G17
def test_a_scaler_costs_one_wait_a_step() -> None:
    assert count_scaler_waits(subject_of(training())) == 1


# Errors --------------------------------------------------------------------------------------------------------------


def test_a_module_of_zeros_and_one_of_infinities_are_saved_and_read_back() -> None:
    """Infinity is no JSON: what has no bound is said in words."""
    from referee.records.schema import from_json, to_json

    model = nn.Sequential(nn.Linear(2, 2), nn.Threshold(1e30, 0.0), nn.Linear(2, 2, bias=False), nn.Flatten())
    x = torch.randn(4, 2)
    found = {row.module: row for row in measure_activations(make_subject(lambda: model(x).sum(), device_type="cpu"))}
    assert found["1"].headroom is None
    assert not found["1"].overflows
    with torch.no_grad():
        model[0].bias.fill_(float("nan"))
    report = advise(
        lambda: model(x).sum(), device=open_device("cpu"), model=model, low=("bfloat16",), budget_ns=1, spent_ns=1
    )
    assert report.activations[0].largest is None
    assert report.activations[0].overflows
    assert from_json(to_json(report)) == report


def test_no_tf32_on_the_cpu() -> None:
    assert [s.name for s in settings_for(open_device("cpu"))] == ["float32", "bfloat16", "float16"]


def test_a_timed_step_is_the_whole_step() -> None:
    step, model, optimizer = training()
    subject = subject_of((step, model, optimizer))
    with restored(subject):
        before = model[0].weight.detach().clone()
        in_setting(subject, BF16)()
        assert not torch.equal(model[0].weight, before)
    assert torch.equal(model[0].weight, before)
