"""Finding outputs in what a step returned, whatever it is."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.device.barrier import settle_outputs
from referee.device.settle import OBJECT_DEPTH, find_leaves
from referee.errors import EnvironmentLacks


class Leaf:
    """What is looked for."""


def nestings(leaves: list[Leaf]) -> st.SearchStrategy[Any]:
    atoms = st.one_of(st.sampled_from(leaves), st.none(), st.integers(), st.text(max_size=3))
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.lists(inner, max_size=4).map(tuple),
            st.dictionaries(st.text(max_size=2), inner, max_size=4),
        ),
        max_leaves=20,
    )


LEAVES = [Leaf() for _ in range(5)]


def flatten(value: Any) -> list[Leaf]:
    """The leaves in order, each once, by recursion."""
    if isinstance(value, Leaf):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in flatten(item)]
    return []


@given(nestings(LEAVES))
def test_leaves_come_in_order_and_once(value: Any) -> None:
    assert find_leaves(value, Leaf) == list(dict.fromkeys(flatten(value)))


def test_objects_dataclasses_and_named_tuples_are_walked() -> None:
    @dataclass
    class Output:
        logits: Any
        cache: Any = None

    @dataclass(slots=True)
    class Slotted:
        logits: Any

    class Layer:
        def __init__(self, leaf: Leaf) -> None:
            self.keys = leaf

    class Cache:
        def __init__(self, leaf: Leaf) -> None:
            self.layers = [Layer(leaf)]

    pair = namedtuple("pair", "a b")
    a, b, c, d, e = LEAVES
    value = OrderedDict(x=Output(logits=a, cache=Cache(b)), y=pair(c, Slotted(d)), z={"inner": {e}})
    assert find_leaves(value, Leaf) == [a, b, c, d, e]


def test_objects_are_walked_to_a_bounded_depth() -> None:
    class Box:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

    value: Any = LEAVES[0]
    for _ in range(OBJECT_DEPTH):
        value = Box(value)
    assert find_leaves(value, Leaf) == [LEAVES[0]]
    assert find_leaves(Box(value), Leaf) == []


def test_cycles_end() -> None:
    value: list[Any] = [LEAVES[0]]
    value.append(value)
    assert find_leaves(value, Leaf) == [LEAVES[0]]


def test_properties_are_not_called() -> None:
    class Trap:
        @property
        def loss(self) -> Leaf:
            raise AssertionError("a property was read")

    assert find_leaves(Trap(), Leaf) == []


@pytest.mark.torch
def test_only_devices_that_need_it_are_awaited() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(2)
    assert settle_outputs(x) == frozenset()
    assert settle_outputs([x, x.to("meta")]) == frozenset()
    open_lazy = pytest.importorskip("referee.device.registry").open_device("lazy")
    assert settle_outputs([x, {"y": x.to("lazy")}]) == {"lazy:0"}
    open_lazy.settle()


@pytest.mark.torch
def test_a_device_without_a_known_barrier_is_refused() -> None:
    torch = pytest.importorskip("torch")
    from referee.device.barrier import wait_for

    with pytest.raises(EnvironmentLacks, match="No barrier is known for devices of type 'vulkan'"):
        wait_for(torch.device("vulkan"))
