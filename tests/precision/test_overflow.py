"""Which operator of an fp16 forward overflows, and that none is blamed for infinities that are meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from referee.device.registry import open_device  # noqa: E402
from referee.precision.advise import advise  # noqa: E402
from referee.precision.findings import zero_findings  # noqa: E402
from referee.precision.gradients import measure_gradients  # noqa: E402
from referee.precision.overflow import first_overflow, overflow_findings  # noqa: E402
from referee.precision.subject import Subject, make_subject  # noqa: E402

Part = Callable[[Any], Any]


def subject_of(part: Part) -> Subject:
    torch.manual_seed(0)
    model, x = nn.Linear(64, 64), torch.randn(8, 64)
    return make_subject(lambda: part(model(x)).float().square().mean(), device_type="cpu", model=model)


OVERFLOWS: dict[str, tuple[str, Part]] = {
    "exponential": ("exp", lambda h: (h * 30).exp()),
    "power": ("pow", lambda h: (h * 300).pow(4)),
    "square": ("mul", lambda h: (h * 1000) * (h * 1000)),
    "sum of squares": ("sum", lambda h: ((h * 100) ** 2).sum()),
    "scores": ("mm", lambda h: (h * 500) @ (h * 500).t()),
    "cast": ("a cast to float16", lambda h: (h.float() * 1e7).half()),
    "in place": ("mul", lambda h: h.mul_(1000).mul_(1000)),
    "small divisor": ("div", lambda h: h / torch.full_like(h, 1e-6)),
    "variance": ("var", lambda h: (h * 1000).var()),
}


@pytest.mark.parametrize("name", OVERFLOWS)
def test_the_first_operator_that_overflows_is_named_with_its_line(name: str) -> None:
    op, part = OVERFLOWS[name]
    found = first_overflow(subject_of(part))
    assert found is not None
    assert found.op == op
    assert found.line.startswith("test_overflow.py:")
    assert found.largest > 65504
    (finding,) = overflow_findings(found, device_type="cpu")
    assert f"{op} at test_overflow.py:" in finding.message


CONSTANTS: dict[str, tuple[str, float, Part]] = {
    "added to a sum": ("add", 1e-8, lambda h: (h * 0) / ((h * 0).abs().sum(-1, keepdim=True) + 1e-8)),
    "least of a norm": ("clamp_min", 1e-12, lambda h: F.normalize(h * 0)),
    "under a root": ("add", 1e-10, lambda h: h * torch.rsqrt((h * 0).square().mean(-1, keepdim=True) + 1e-10)),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_that_is_zero_in_fp16_and_divided_by_is_named(name: str) -> None:
    op, constant, part = CONSTANTS[name]
    found = first_overflow(subject_of(part))
    assert found is not None
    assert (found.op, found.constant) == (op, constant)
    (finding,) = overflow_findings(found, device_type="cpu")
    assert f"{constant:g}" in finding.message


@pytest.mark.parametrize(
    "part",
    [
        lambda h: h.masked_fill(torch.eye(8, 64).bool(), float("-inf")).softmax(-1),
        lambda h: (h + torch.triu(torch.full((8, 64), float("-inf")), 1)).softmax(-1),
        lambda h: (h * 0).log(),
        lambda h: h + 1e-8,
        lambda h: h,
    ],
    ids=["mask filled", "mask added", "infinite in float32 as well", "constant that nothing is divided by", "plain"],
)
def test_what_is_infinite_by_intention_or_in_float32_as_well_is_nobodys_fault(part: Part) -> None:
    assert first_overflow(subject_of(part)) is None


def test_what_autocast_does_with_it_on_cuda_is_said_where_it_is_something_else() -> None:
    messages = {}
    for name in ("exponential", "square"):
        (finding,) = overflow_findings(first_overflow(subject_of(OVERFLOWS[name][1])), device_type="cpu")
        messages[name] = finding.message
    assert "On CUDA autocast computes exp in float32" in messages["exponential"]
    assert "CUDA" not in messages["square"]


def test_looking_leaves_the_step_as_it_was() -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(4, 4), torch.randn(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> Any:
        loss = (model(x) * 1e6).exp().mean()
        loss.backward()
        optimizer.step()
        return loss

    before = model.weight.detach().clone()
    assert first_overflow(make_subject(step, device_type="cpu", model=model, optimizer=optimizer)) is not None
    assert torch.equal(model.weight, before)
    assert model.weight.grad is None


def test_the_advisor_tells_it_with_the_ranges() -> None:
    subject = subject_of(OVERFLOWS["square"][1])
    report = advise(subject.step, device=open_device("cpu"), model=subject.model, budget_ns=100_000_000)
    assert "operator-overflows" in {finding.code for finding in report.findings}
    assert report.verdict.dtype != "float16"
    plain = subject_of(lambda h: h)
    quiet = advise(plain.step, device=open_device("cpu"), model=plain.model, budget_ns=100_000_000)
    assert "operator-overflows" not in {finding.code for finding in quiet.findings}


@pytest.mark.parametrize("constant", [False, True])
def test_a_gradient_that_is_zero_throughout_has_no_range(constant: bool) -> None:
    subject = subject_of((lambda h: h * 0) if constant else (lambda h: h))
    found = zero_findings(measure_gradients(subject).reference, subject)
    assert [f.code for f in found] == (["gradients-zero"] if constant else [])
    report = advise(subject.step, device=open_device("cpu"), model=subject.model, budget_ns=100_000_000)
    assert report.gradients is not None
    assert (report.gradients.scale_low is None) is constant
    assert ("good loss scales" in " ".join(report.verdict.lines)) is not constant


def test_half_weights_whose_norm_overflows_to_a_zero_gradient_name_the_operator() -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(512, 512).half(), 100 * torch.randn(8, 512).half()

    def step() -> Any:
        hidden = model(x)
        norm = (hidden * hidden).sum(-1, keepdim=True).sqrt()
        return (hidden / norm).float().square().mean()

    report = advise(step, device=open_device("cpu"), model=model, budget_ns=100_000_000)
    found = {finding.code: finding for finding in report.findings}
    assert "gradients-zero" in found or "gradients-not-finite" in found
    if "gradients-zero" in found:
        assert found["operator-overflows"].evidence["op"] == "sum"
