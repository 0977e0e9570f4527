"""Averages and optimizer states kept in few bits that are updated in vain, and those that are not."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from referee.precision.standing import standing_findings, standing_still  # noqa: E402

from .models import subject_of  # noqa: E402


def averaged(dtype: Any, decay: float, how: str) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    model, x = torch.nn.Linear(16, 16), torch.randn(8, 16)
    average = torch.nn.Linear(16, 16).to(dtype).weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            new = model.weight.to(dtype)
            if how == "mul and add":
                average.mul_(decay).add_(new, alpha=1 - decay)
            elif how == "lerp":
                average.lerp_(new, 1 - decay)
            else:
                average.copy_(new)
        return loss.detach()

    return step, model, optimizer


@pytest.mark.parametrize("how", ["mul and add", "lerp"])
@pytest.mark.parametrize(
    ("dtype", "decay", "still"),
    [
        (torch.bfloat16, 0.9999, True),
        (torch.float16, 0.9999, True),
        (torch.bfloat16, 0.5, False),
        (torch.float32, 0.9999, False),
    ],
)
def test_an_average_that_its_decay_does_not_move_is_named(dtype: Any, decay: float, still: bool, how: str) -> None:
    made = averaged(dtype, decay, how)
    found = standing_still(subject_of(made))
    assert [one.name for one in found] == (["A tensor (16, 16)"] if still else [])
    for finding in standing_findings(found):
        assert finding.evidence["op"] == ("mul" if how == "mul and add" else "lerp")
        assert str(finding.evidence["line"]).startswith("test_standing.py:")


def test_what_is_set_to_the_value_that_it_has_is_no_update() -> None:
    assert standing_still(subject_of(averaged(torch.bfloat16, 0.9999, "copy"))) == ()


@pytest.mark.parametrize(("dtype", "still"), [(torch.bfloat16, True), (torch.float32, False)])
@pytest.mark.parametrize("foreach", [True, False])
def test_a_second_moment_in_bf16_does_not_decay(dtype: Any, still: bool, foreach: bool) -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Linear(16, 16).to(dtype), torch.randn(8, 16, dtype=dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=foreach)

    def step() -> Any:
        optimizer.zero_grad()
        loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    before = [p.detach().clone() for p in model.parameters()]
    named = {one.name for one in standing_still(subject_of((step, model, optimizer)))}
    assert named == ({"exp_avg_sq of AdamW"} if still else set())
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
    assert not optimizer.state  # everything is put back
