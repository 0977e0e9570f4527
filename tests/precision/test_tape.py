"""The derived backward against the one that ran, and against a CPU step that casts by hand as CUDA's autocast would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from referee.precision.audit import Audit, audit  # noqa: E402
from referee.precision.control import BF16, Setting  # noqa: E402
from referee.precision.elsewhere import (  # noqa: E402
    Elsewhere,
    casts_elsewhere,
    derived_differences,
    differences,
    record_elsewhere,
)
from referee.precision.policy import policies  # noqa: E402
from referee.precision.recorder import CastEvent  # noqa: E402
from referee.precision.subject import Subject, make_subject  # noqa: E402
from referee.precision.tape import derived_casts  # noqa: E402

from .models import FAMILIES  # noqa: E402

Low = Callable[[Any], Any]
BF = torch.bfloat16


def subject_of(step: Callable[[], object], model: Any, **options: Any) -> Subject:
    return make_subject(step, device_type="cpu", model=model, **options)


def counted(casts: list[CastEvent], *, backward: bool = True) -> Counter[Any]:
    return Counter((c.source, c.target, c.shape) for c in casts if c.backward is backward)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_derived_casts_are_those_of_the_backward_that_ran(family: str, dtype: str) -> None:
    torch.manual_seed(0)
    model, step = FAMILIES[family]()
    found = audit(subject_of(step, model), Setting(name=dtype, autocast=dtype), policies=policies("cpu"))
    ran = counted(found.recording.casts)
    assert sum(ran.values()) > 0
    assert counted(derived_casts(found.tape.reached())) == ran


def both(step: Callable[[], object], model: Any, **options: Any) -> tuple[Audit, Elsewhere]:
    subject = subject_of(step, model, **options)
    return audit(subject, BF16, policies=policies("cpu")), record_elsewhere(subject, "cuda", "bfloat16")


def by_hand(step: Callable[[], Any], model: Any) -> Counter[Any]:
    """The casts of the real backward of a step that casts as its author says, without any autocast."""
    found = audit(subject_of(step, model), Setting(name="by hand"), policies=policies("cpu"))
    return counted(found.recording.casts)


def normed(x: Any, m: Any) -> tuple[Any, Any]:
    """Two products with a layer norm between; by CUDA's rules the norm and the sum compute in float32."""

    def plain() -> Any:
        return m[2](m[1](m[0](x))).sum()

    def cast() -> Any:
        def linear(layer: Any, given: Any) -> Any:
            return F.linear(given.to(BF), layer.weight.to(BF), layer.bias.to(BF))

        hidden = F.layer_norm(linear(m[0], x).float(), (6,), m[1].weight, m[1].bias)
        return linear(m[2], hidden).float().sum()

    return plain, cast


def softmaxed(x: Any, m: Any) -> tuple[Any, Any]:
    """A softmax, which CUDA computes in float32, a weight used twice, which is cast once, and a detached target."""

    def plain() -> Any:
        hidden = F.linear(F.linear(x, m[3].weight), m[3].weight)
        return F.mse_loss(hidden.softmax(-1), hidden.detach())

    def cast() -> Any:
        weight = m[3].weight.to(BF)
        hidden = F.linear(F.linear(x.to(BF), weight), weight)
        return F.mse_loss(hidden.float().softmax(-1), hidden.detach().float())

    return plain, cast


@pytest.mark.parametrize("made", [normed, softmaxed])
def test_the_derived_casts_are_those_of_a_step_that_casts_by_hand_as_cuda_does(made: Any) -> None:
    torch.manual_seed(0)
    model = nn.ModuleList([nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 6), nn.Linear(6, 6)])
    plain, cast = made(torch.randn(3, 6), model)
    here, there = both(plain, model)
    assert there.stopped == ""
    derived = counted(casts_elsewhere(there))
    assert derived == by_hand(cast, model)
    # With the norm it is another count than the CPU's own, so that the CPU's would not pass for it.
    assert made is softmaxed or derived != counted(here.recording.casts)


def test_what_differs_in_backward_is_marked_derived() -> None:
    torch.manual_seed(0)
    model, inputs = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), torch.randn(2, 4)
    here, there = both(lambda: model(inputs).sum(), model)
    rows, reason = derived_differences(here.recording, here.tape, there)
    assert reason == ""
    assert all(row.derived for row in rows)
    assert {(r.call, r.here, r.there) for r in rows} == {
        ("layer_norm", "bfloat16", "float32"),
        ("sum", "bfloat16", "float32"),
    }


def test_what_the_loss_does_not_need_has_no_backward() -> None:
    model, inputs = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]), torch.randn(2, 4)

    def step() -> Any:
        model[1](inputs)
        return model[0](inputs).sum()

    _, there = both(step, model)
    casts = counted(casts_elsewhere(there))
    assert casts["bfloat16", "float32", (4, 4)] == 1
    assert counted(casts_elsewhere(there), backward=False)["float32", "bfloat16", (4, 4)] == 2


def test_a_step_that_writes_into_its_result_is_followed() -> None:
    model, inputs = nn.Linear(4, 4), torch.randn(2, 4)

    def step() -> Any:
        held = torch.zeros(2, 2, 4)
        held[0] = model(inputs)
        return held.sum()

    here, _ = both(step, model)
    assert counted(derived_casts(here.tape.reached())) == counted(here.recording.casts)


def write_by_index(held: Any, made: Any) -> None:
    held[0] = made


def write_to_a_part(held: Any, made: Any) -> None:
    held[0].copy_(made)


def write_to_a_part_of_a_part(held: Any, made: Any) -> None:
    held[0][:, :].copy_(made)


@pytest.mark.parametrize("write", [write_by_index, write_to_a_part, write_to_a_part_of_a_part])
def test_writing_into_a_part_is_followed_on_the_other_device(write: Callable[[Any, Any], None]) -> None:
    model, inputs = nn.Linear(4, 4), torch.randn(2, 4)

    def step() -> Any:
        held = torch.zeros(2, 2, 4)
        write(held, model(inputs))
        return held.square().mean()

    here, there = both(step, model)
    assert there.stopped == ""
    # Writing into float32 makes CUDA's casts those of the CPU.
    assert counted(casts_elsewhere(there)) == counted(here.recording.casts)
    assert counted(here.recording.casts)["float32", "bfloat16", (2, 4)] == 1
    assert derived_differences(here.recording, here.tape, there) == ((), "")


def test_an_intermediate_result_may_be_indexed_and_made_contiguous() -> None:
    model, inputs = nn.Linear(4, 4), torch.randn(2, 3, 4)
    here, there = both(lambda: model(inputs)[:, -1].t().contiguous().float().sum(), model)
    assert there.stopped == ""
    assert counted(casts_elsewhere(there)) == counted(here.recording.casts)


def test_of_several_losses_the_first_is_followed_and_that_is_said() -> None:
    model, inputs = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 2)]), torch.randn(2, 4)

    def step() -> Any:
        model[0](inputs).float().sum().backward()
        model[1](inputs).float().square().sum().backward()

    here, there = both(step, model)
    _, reason = derived_differences(here.recording, here.tape, there)
    assert "first of 2 losses" in reason
    assert "(first linear)" in reason


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2


def test_a_function_with_its_own_backward_is_named_and_gradients_go_on_through_it() -> None:
    model, inputs = nn.Linear(4, 4), torch.randn(2, 4)
    here, there = both(lambda: Doubled.apply(model(inputs)).sum(), model)
    _, reason = derived_differences(here.recording, here.tape, there)
    assert "Doubled" in reason
    assert counted(casts_elsewhere(there))["bfloat16", "float32", (4, 4)] == 1


class ReadsValues(torch.autograd.Function):
    """Its forward leaves torch, which a tensor without memory cannot."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any) -> Any:
        ctx.save_for_backward(x, weight)
        return torch.from_numpy(x.float().detach().numpy()) * weight

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, weight = ctx.saved_tensors
        return grad * weight, (grad * x).sum()


def test_a_function_that_does_not_run_there_is_named_and_the_rest_is_compared() -> None:
    before, after = nn.Linear(4, 4), nn.Linear(4, 4)
    weight = nn.Parameter(torch.ones(()))
    model, inputs = nn.ModuleList([before, after]), torch.randn(2, 4)
    here, there = both(lambda: after(ReadsValues.apply(before(inputs).sum(0, keepdim=True), weight)).sum(), model)
    rows, reason = differences(here.recording, there)
    assert "ReadsValues.forward does not run there" in reason
    # The sum before it and the one after it: float32 on CUDA, the input's dtype here.
    assert [(row.call, row.here, row.there, row.count) for row in rows] == [("sum", "bfloat16", "float32", 2)]
    assert there.stopped == ""
    assert [call.name for call in there.recording.calls].count("linear") == 2


class Weighted(torch.autograd.Function):
    """A layer of its own: a parameter enters it directly."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any) -> Any:
        ctx.save_for_backward(x, weight)
        return x.float() @ weight.t()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, weight = ctx.saved_tensors
        return grad.float() @ weight, grad.float().t() @ x.float()


def test_a_function_that_is_given_a_weight_is_followed() -> None:
    layer, inputs = nn.Linear(4, 4), torch.randn(2, 4)
    here, there = both(lambda: layer(Weighted.apply(inputs, layer.weight)).sum(), layer)
    rows, reason = differences(here.recording, there)
    assert (there.stopped, reason) == ("", "")
    assert [row.call for row in rows] == ["sum"]
