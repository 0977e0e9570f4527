"""What stands around a long kernel: the same memory on both sides, a scattered stack, a witness, a bound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from referee.anatomy.arguments import Wish, make_arguments
from referee.anatomy.behind import behind_pairs, judge_behind
from referee.anatomy.dissect import dissect
from referee.anatomy.operator import find_operator
from referee.anatomy.prepare import Request, prepare
from referee.anatomy.stages import Subject, build_ladder
from referee.anatomy.timing import Cost
from referee.device.registry import open_device
from referee.records.anatomy import Stage
from referee.records.estimate import Estimate
from referee.report.compose import compose
from referee.report.text import render_text


def subject_of(name: str, probe: Any, *shape: int, **options: Any) -> Subject:
    request = Request(operator=find_operator(name), wish=Wish(shapes=(shape,) if shape else ()), **options)
    return prepare(request, make_arguments(request.operator, request.wish), probe).subject


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("aten.mm", {}),
        ("aten.mm", {"autocast": True}),
        ("aten.cat", {}),
        ("aten.embedding", {}),
        ("aten.where.self", {}),
    ],
)
def test_with_and_without_gradients_the_same_memory_is_read(name: str, options: dict[str, bool], probe: Any) -> None:
    subject = subject_of(name, probe, **options)
    assert any(tensor.requires_grad for tensor in subject.wanting.tensors)
    assert not any(tensor.requires_grad for tensor in subject.plain.tensors)
    for wanting, plain in zip(subject.wanting.tensors, subject.plain.tensors, strict=True):
        assert wanting.data_ptr() == plain.data_ptr()
        assert (wanting.dtype, wanting.is_leaf) == (plain.dtype, True)


def test_a_scattered_call_gives_what_it_gives(probe: Any) -> None:
    a, b = torch.rand(8), torch.rand(8)
    call = probe.Call("aten::add", "Tensor", (a, b), {})
    call.set_scattered(True)
    for make in (probe.rung, probe.boxed_rung):
        rung = make(call, "wrap", 0, False)
        made = [rung(a, b) for _ in range(600)]
        assert all(torch.equal(one, a + b) for one in made)
        refused = probe.Call("aten::add", "Tensor", (a, c := torch.rand(3)), {})
        refused.set_scattered(True)
        rung = make(refused, "call", 0, False)
        with pytest.raises(RuntimeError, match="size"):
            rung(a, c)


def test_a_long_kernel_has_a_witness_behind_it_and_a_short_one_none(probe: Any) -> None:
    subject = subject_of("aten.mm", probe, 256, 256)
    assert subject.scattered  # at any load: it takes a tenth of a millisecond at least
    pairs = behind_pairs(subject, build_ladder(subject, probe))
    assert [pair.name for pair in pairs] == ["small node", "small node behind"]
    for pair in pairs:
        for side in (pair.upper, pair.lower):
            side.loop()(2)
    short = replace(subject, scattered=False)
    assert behind_pairs(short, build_ladder(short, probe)) == ()
    without = subject_of("aten.mm", probe, 256, 256, mode="no_grad")
    assert behind_pairs(without, build_ladder(without, probe)) == ()


@pytest.mark.parametrize(("behind", "said"), [(660.0, True), (445.0, False), (300.0, False)])
def test_dearer_behind_a_kernel_is_said_where_it_surely_is(behind: float, said: bool) -> None:
    def cost(name: str, ns: float) -> Cost:
        estimate = Estimate(point=ns, low=ns - 20, high=ns + 20, level=0.95, n=80, n_eff=80)
        return Cost(name=name, hot=estimate, cold=None)

    findings = judge_behind((cost("small node", 420.0), cost("small node behind", behind)), 12_700.0)
    assert [finding.code for finding in findings] == ["dearer-behind-kernel"] * said
    assert judge_behind((), 12_700.0) == ()


@pytest.mark.parametrize(
    ("ns", "low", "high", "shown"),
    [
        (49.0, -48.0, 152.0, "< 160 ns"),
        (80.0, -200.0, 120.0, "< 200 ns"),
        (80.0, 61.0, 90.0, "80.0 ns"),
        (9.0, -2.0, 20.0, "< 50 ns"),
    ],
)
@pytest.mark.usefixtures("probe")
def test_a_stage_that_cannot_be_told_from_nothing_is_shown_by_what_it_is_below(
    ns: float, low: float, high: float, shown: str, cpu: Any
) -> None:
    found = dissect("aten.neg", device=cpu, budget_ns=1_000_000, cold=False, mode="no_grad")
    stage = Stage(name="dispatch: keys", ns=ns, cold_ns=None, ci_low_ns=low, ci_high_ns=high, layer="dispatch")
    text = render_text(compose(replace(found, stages=(stage,))), width=120, color=False)
    row = next(line for line in text.splitlines() if line.strip().startswith("dispatch: keys"))
    assert shown in row


def test_what_was_not_taken_cold_is_said(probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("referee.anatomy.timing._fits", lambda *_, **__: False)
    found = dissect("aten.neg", device=open_device("cpu"), budget_ns=50_000_000)
    assert found.whole_cold_ns is None
    assert "cold-not-taken" in {finding.code for finding in found.findings}
    assert all(stage.cold_ns is None for stage in found.stages)
