"""Dispatch paths: predicted from key sets and rules, held against recording kernels on the real operators."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from referee.anatomy.arguments import Arguments, make_arguments
from referee.anatomy.operator import find_operator
from referee.anatomy.path import key_bits, keys_of_call, predict, read_table, visited
from referee.anatomy.scenario import MODES, make_scenario
from referee.anatomy.witness import _Log, predict_paths, witness_paths

needs_kernels = pytest.mark.skipif(
    not hasattr(torch.library, "get_kernel"), reason="torch before 2.9 hands out no kernels"
)


@needs_kernels
@pytest.mark.parametrize(
    "name",
    [
        "aten.add.Tensor",
        "aten.add_.Tensor",
        "aten.mm",
        "aten.sum",
        "aten.view",
        "aten.linear",
        "aten.embedding",
        "aten.cat",
        "aten.chunk",
        "aten.contiguous",
        "aten.t_",
        "aten.unsqueeze_",
        "aten.resize_",
        "aten.set_.source_Tensor",
        "aten.fill_.Scalar",
        "aten.masked_fill_.Scalar",
        "aten.addcmul_",
        "aten.copy_",
        "aten.scaled_dot_product_attention",
        "aten.dropout",
        "aten.acosh",
        "aten.addr",
        "aten.detach_",
        "aten.mvlgamma_",
        "aten.set_",
        "aten.roll",
    ],
)
def test_the_witness_sees_what_was_predicted(name: str) -> None:
    operator = find_operator(name)
    paths = witness_paths(operator, make_arguments(operator), MODES)
    seen = [path for path in paths if path.witnessed is not None]
    assert len(seen) >= len(MODES) - 2, [path.why_not for path in paths]
    assert [path for path in seen if not path.agrees] == []
    assert all(path.gradients_equal is not False for path in seen)


@needs_kernels
@pytest.mark.parametrize(
    ("name", "mode"),
    [("aten.add_.Tensor", "func_grad"), ("aten.mul_.Scalar", "func_grad"), ("aten.bernoulli_.float", "vmap")],
)
def test_a_mode_takes_what_writes_and_what_is_random(name: str, mode: str) -> None:
    operator = find_operator(name)
    (path,) = witness_paths(operator, make_arguments(operator), (mode,))
    assert path.why_not == ""
    assert path.agrees


@needs_kernels
@pytest.mark.parametrize("mode", ["grad", "autocast"])
@pytest.mark.parametrize("name", ["aten.mm", "aten.mul.Tensor"])
def test_gradients_through_the_witness_are_those_without_it(name: str, mode: str) -> None:
    operator = find_operator(name)
    (path,) = witness_paths(operator, make_arguments(operator), (mode,))
    assert path.gradients_equal is True


def test_what_a_backends_kernel_calls_is_no_part_of_the_path() -> None:
    log = _Log()
    with log.meeting("op@AutogradCPU", ends=False), log.meeting("op@CPU", ends=True):
        with log.meeting("op@AutogradCPU", ends=False), log.meeting("op@CPU", ends=True):
            pass
        with pytest.raises(RuntimeError), log.meeting("op@CPU", ends=True):
            raise RuntimeError
    with log.meeting("op@CPU", ends=True):
        pass
    assert log.met == ["op@AutogradCPU", "op@CPU", "op@CPU"]


@needs_kernels
def test_a_witness_leaves_this_process_as_it_was() -> None:
    operator = find_operator("aten.neg")
    before = torch._C._dispatch_dump_table("aten::neg")
    witness_paths(operator, make_arguments(operator), ("plain",))
    assert torch._C._dispatch_dump_table("aten::neg") == before


def test_paths_known_from_the_dispatchers_rules() -> None:
    def path(name: str, mode: str) -> tuple[str, ...]:
        operator = find_operator(name)
        (found,) = predict_paths(operator, make_arguments(operator), (mode,))
        return found.predicted

    assert path("aten.mm", "autocast") == ("mm@AutocastCPU", "mm@AutogradCPU", "mm@CPU")
    assert path("aten.sum", "autocast") == ("sum@AutogradCPU", "sum@CPU")  # no policy on the CPU
    assert path("aten.add.Tensor", "inference_tensors") == ("add.Tensor@CPU",)
    assert path("aten.add_.Tensor", "plain") == (
        "add_.Tensor@AutogradCPU",
        "add_.Tensor@ADInplaceOrView",
        "add_.Tensor@CPU",
    )
    assert path("aten.add_.Tensor", "inference_mode") == ("add_.Tensor@ADInplaceOrView", "add_.Tensor@CPU")
    assert path("aten.linear", "plain") == ("linear@AutogradCPU",)  # composite: it calls others


def test_every_key_is_listed_with_what_is_registered_there() -> None:
    operator = find_operator("aten.add.Tensor")
    entries = predict(operator, keys_of_call((torch.rand(2), torch.rand(2))))
    by_key = {entry.key: entry for entry in entries}
    assert by_key["ADInplaceOrView"].kernel == "fallthrough"
    assert not by_key["ADInplaceOrView"].visited
    assert visited(entries) == ("AutogradCPU", "CPU")
    assert read_table(find_operator("aten.linear"))["CPU"].math


def test_the_number_for_the_probe_is_the_set_of_these_keys() -> None:
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU) | torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradCPU)
    assert key_bits(("AutogradCPU", "CPU")) == keys.raw_repr()


def test_a_mode_does_not_change_the_arguments_of_the_next() -> None:
    operator = find_operator("aten.add_.Tensor")
    a = torch.zeros(2)
    scenario = make_scenario(operator, Arguments(args=(a, torch.ones(2))), "plain")
    with scenario.context():
        scenario.call()
    assert torch.equal(a, torch.zeros(2))


@needs_kernels
@pytest.mark.parametrize(
    ("schema", "kernel"),
    [
        ("plus(Tensor x) -> Tensor", lambda x: x + 1),
        ("count(Tensor(a!) x) -> ()", lambda x: x.detach().add_(1) and None),
    ],
)
def test_operators_of_a_users_library_are_witnessed_by_their_full_names(schema: str, kernel: Any) -> None:
    library = torch.library.Library("referee_paths", "FRAGMENT")
    library.define(schema)
    name = schema.partition("(")[0]
    library.impl(name, kernel, "CPU")
    operator = find_operator(f"referee_paths::{name}")
    modes = ("plain", "no_grad", "inference_mode", "inference_tensors")
    paths = witness_paths(operator, make_arguments(operator), modes)
    assert [path.agrees for path in paths] == [True] * len(modes), paths
    entries = predict(operator, keys_of_call((torch.rand(2),)))
    assert next(entry.note for entry in entries if entry.key == "AutogradCPU").startswith("has no formula here")


def test_what_writes_under_another_overloads_name_is_left_open_under_functionalisation() -> None:
    operator = find_operator("aten.bernoulli_.float")
    (path,) = predict_paths(operator, make_arguments(operator), ("functionalize",))
    assert path.why_not == ""
    assert path.open_ended


@needs_kernels
@pytest.mark.parametrize("name", ["aten.can_cast", "aten.result_type.Scalar_Scalar", "aten._assert_scalar"])
def test_what_takes_no_tensor_and_chooses_no_backend_has_no_key(name: str) -> None:
    operator = find_operator(name)
    assert visited(predict(operator, keys_of_call(()))) == ("Undefined",)
    paths = witness_paths(operator, make_arguments(operator), ("plain", "inference_mode"))
    assert [path.agrees for path in paths] == [True, True]
    factory = find_operator("aten.rand")
    assert visited(predict(factory, keys_of_call(()))) == ("BackendSelect", "CPU")
