"""What is said where an operator cannot be called, or is none of the dispatcher's."""

from __future__ import annotations

import pytest

from referee.anatomy.arguments import Wish, make_arguments
from referee.anatomy.operator import find_operator
from referee.anatomy.refusals import first_sentence, memory_errors, missing
from referee.errors import CannotTell, OptionError

pytest.importorskip("torch")

FULL = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate"
    " 400000000000 bytes. Error code 12 (Cannot allocate memory)"
)


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("aten.sparse_mask", "sparse and compressed sparse tensors"),
        ("aten._scaled_mm", "operands of float8"),
    ],
)
def test_a_refusal_says_what_the_operator_would_need(name: str, needs: str) -> None:
    with pytest.raises(CannotTell) as caught:
        make_arguments(find_operator(name))
    assert needs in str(caught.value)


@pytest.mark.parametrize("name", ["aten.add.Tensor", "aten.linear", "aten.zeros", "aten._foreach_add.List"])
def test_nothing_is_said_to_be_missing_where_dense_tensors_do(name: str) -> None:
    assert missing(find_operator(name)) == ""


@pytest.mark.parametrize("text", ["prim.device", "prim::device"])
def test_an_operator_of_torchscript_alone_is_called_so(text: str) -> None:
    with pytest.raises(OptionError, match="prim::device is an operator of TorchScript alone"):
        find_operator(text)


@pytest.mark.parametrize("name", ["aten.zeros", "aten.empty.memory_format", "aten.rand"])
def test_what_an_operator_without_tensors_makes_has_the_shape_asked_for(name: str) -> None:
    assert list(make_arguments(find_operator(name), Wish(shapes=((5, 7),))).args[0]) == [5, 7]
    with pytest.raises(OptionError, match="cannot be called with that"):
        make_arguments(find_operator(name), Wish(shapes=((1 << 40, 1 << 10),)))


def test_memory_that_cannot_be_had_is_said_in_bytes() -> None:
    assert first_sentence(FULL) == "373 GiB cannot be allocated"
    assert first_sentence("Sizes differ. More words.\nAnd lines.") == "Sizes differ"
    operator = find_operator("aten.relu")
    with (
        pytest.raises(OptionError, match="with tensors of that size: 373 GiB cannot be allocated"),
        memory_errors(operator),
    ):
        raise RuntimeError(FULL)
    with pytest.raises(RuntimeError, match="anything else"), memory_errors(operator):
        raise RuntimeError("anything else")
