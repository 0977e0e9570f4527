"""Operators by name, arguments by schema, entries by what they lead to."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch

from referee.anatomy.arguments import Wish, make_arguments
from referee.anatomy.children import run_child
from referee.anatomy.entry import complaint_signatures, find_entry, schema_signature
from referee.anatomy.operator import find_operator, split_arguments
from referee.anatomy.survey import kind_of
from referee.errors import CannotTell, OptionError


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("aten.add.Tensor", "aten::add.Tensor"),
        ("aten::add.Tensor", "aten::add.Tensor"),
        ("add", "aten::add.Tensor"),
        ("aten.relu", "aten::relu"),
        ("aten.relu.default", "aten::relu"),
        ("torch.ops.aten.mm.default", "aten::mm"),
        ("sum.dim_IntList", "aten::sum.dim_IntList"),
        ("torch.add", "aten::add.Tensor"),
        ("torch.nn.functional.relu", "aten::relu"),
        ("torch.Tensor.add_", "aten::add_.Tensor"),
        ("torch.linalg.svd", "aten::linalg_svd"),
        ("torch.linalg.linalg_svd", "aten::linalg_svd"),
        ("torch.fft.rfft", "aten::fft_rfft"),
        ("torch.special.erfinv", "aten::special_erfinv"),
    ],
)
def test_names_that_people_write(text: str, full: str) -> None:
    assert find_operator(text).full == full


@pytest.mark.parametrize("text", ["aten.ad.Tensor", "aten.add.Tensr", "a.b.c.d", "", "add Tensor"])
def test_a_wrong_name_is_one_sentence_with_what_is_there(text: str) -> None:
    with pytest.raises(OptionError) as caught:
        find_operator(text)
    assert caught.value.hint


def test_what_the_schema_says() -> None:
    add_, view, out = find_operator("aten.add_.Tensor"), find_operator("aten.view"), find_operator("aten.add.out")
    assert (add_.in_place, add_.is_view, add_.is_out) == (True, False, False)
    assert (view.in_place, view.is_view, view.is_out) == (False, True, False)
    assert (out.in_place, out.is_out) == (False, True)
    assert view.arguments[1].kind == "List[SymInt]"
    assert split_arguments("a::b(Tensor(a!) self, int[2] x=[0, 0], *, Scalar alpha=1) -> Tensor(a!)") == [
        "Tensor(a!) self",
        "int[2] x=[0, 0]",
        "Scalar alpha=1",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "aten.add.Tensor",
        "aten.mul_.Tensor",
        "aten.cat",
        "aten.sum.dim_IntList",
        "aten.zeros",
        "aten.view",
        "aten.index_select",
        "aten.convolution",
        "aten.clamp",
        "aten.bernoulli",
        "aten._foreach_add.List",
        "aten.split.Tensor",
        "aten.embedding",
        "aten.native_layer_norm",
        "aten.where.self",
        "aten.topk",
        "aten.cross_entropy_loss",
        "aten.binary_cross_entropy_with_logits",
        "aten.linalg_cholesky",
        "aten.grid_sampler",
        "aten.quantize_per_tensor",
    ],
)
def test_arguments_are_found_for_operators_of_many_kinds(name: str) -> None:
    operator = find_operator(name)
    arguments = make_arguments(operator)
    operator.callable(*arguments.args, **arguments.kwargs)


def test_what_is_made_up_asks_for_the_work_that_people_mean() -> None:
    def made(name: str) -> Any:
        return make_arguments(find_operator(name))

    assert made("aten.dropout").args[2] is True
    assert made("aten.to.dtype").args[1] is torch.float64
    assert made("aten.nll_loss").tensors[1].dtype == torch.int64
    assert made("aten.mse_loss").tensors[1].dtype == torch.float32


def test_the_users_shapes_are_taken_or_refused() -> None:
    operator = find_operator("aten.mm")
    arguments = make_arguments(operator, Wish(shapes=((3, 5), (5, 2)), dtype="float64"))
    assert [tuple(t.shape) for t in arguments.tensors] == [(3, 5), (5, 2)]
    assert arguments.tensors[0].dtype == torch.float64
    with pytest.raises(OptionError, match="cannot be called with that"):
        make_arguments(operator, Wish(shapes=((3, 5), (4, 2))))


def test_an_operator_for_another_backend_says_why() -> None:
    with pytest.raises(CannotTell, match="No arguments"):
        make_arguments(find_operator("aten._cufft_clear_plan_cache"))


def test_a_child_that_dies_or_says_nothing_is_told_apart() -> None:
    def dies(report: Any) -> None:
        report(b"begun")
        os.kill(os.getpid(), signal.SIGSEGV)

    child, reports = run_child(dies, limit_s=10)
    assert (list(reports), child.signal, child.too_long) == ([b"begun"], signal.SIGSEGV, False)
    child, reports = run_child(lambda report: signal.pause(), limit_s=0.05)
    assert (list(reports), child.too_long) == ([], True)
    child, reports = run_child(lambda report: [report(b"x" * 100_000) for _ in range(3)] and None, limit_s=10)
    assert ([len(body) for body in reports], child.signal) == ([100_000] * 3, 0)


def test_signatures_from_the_parsers_own_complaint() -> None:
    operator = find_operator("aten.sum.dim_IntList")
    with pytest.raises(TypeError) as caught:
        torch.sum(*[object()] * 23)  # type: ignore[call-overload]
    found = complaint_signatures(operator, str(caught.value))
    assert len(found) == 2
    assert found[1] == (
        "sum(Tensor input, IntArrayRef? dim, bool keepdim=False, *, ScalarType? dtype=None, Tensor? out=None)"
    )
    assert schema_signature(find_operator("aten.add.Tensor"), method=False) == (
        "add(Tensor input, Tensor other, *, Scalar alpha=1)"
    )


@pytest.mark.parametrize(
    ("name", "expression"),
    [
        ("aten.add.Tensor", "torch.add(a, b)"),
        ("aten.mul_.Tensor", "a.mul_(b)"),
        ("aten.gelu", "torch._C._nn.gelu(a)"),
        ("aten.linalg_det", "torch._C._linalg.linalg_det(a)"),
        ("aten._to_copy", "torch.ops.aten._to_copy.default(a)"),
        ("aten.mse_loss", "torch.ops.aten.mse_loss.default(a, b)"),  # torch._C._nn.mse_loss(a, b) does not reduce
    ],
)
def test_the_expression_leads_to_the_operator(name: str, expression: str, probe: Any) -> None:
    operator = find_operator(name)
    entry = find_entry(operator, make_arguments(operator), record=probe.record)
    assert entry.expression == expression


def test_kinds_of_operators() -> None:
    expected = {
        "aten.add.Tensor": "pointwise",
        "aten.add_.Tensor": "in-place",
        "aten.view": "view",
        "aten.cat": "list",
        "aten.sum.dim_IntList": "reduction",
        "aten.zeros": "factory",
        "aten.index_select": "indexing",
        "aten.bernoulli": "random",
    }
    assert {name: kind_of(find_operator(name)) for name in expected} == expected
