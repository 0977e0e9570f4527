"""Cache states: sizes by arithmetic, refusals where a cold number would be a warm one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.device.cache import FlushCheck, Flusher, cache_bytes, copies_needed, rotate, working_set_bytes
from referee.device.fake import FakeAsync
from referee.device.observe import observe
from referee.device.registry import open_device
from referee.errors import EnvironmentLacks, OptionError
from referee.records.provenance import TensorSpec

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def spec(shape: tuple[int, ...], dtype: str, count: int = 1) -> TensorSpec:
    return TensorSpec(role="input", shape=shape, stride=(), dtype=dtype, device="cpu", count=count)


def test_the_working_set_is_what_entered() -> None:
    shapes = [spec((64, 512), "float32"), spec((8,), "int64", count=2), spec((3,), "bfloat16"), spec((), "bool")]
    assert working_set_bytes(shapes) == 64 * 512 * 4 + 2 * 8 * 8 + 3 * 2 + 1


def test_the_working_set_agrees_with_torch() -> None:
    model, x = torch.nn.Linear(16, 8), torch.randn(4, 16)
    seen = observe(lambda: model(x), open_device("cpu"))
    assert working_set_bytes(seen.shapes) == sum(t.numel() * t.element_size() for t in (x, *model.parameters()))


@given(working_set=st.integers(1, 10**6), cache=st.integers(1, 10**6))
def test_the_other_copies_always_exceed_the_cache(working_set: int, cache: int) -> None:
    copies = copies_needed(working_set=working_set, cache=cache)
    assert copies >= 2
    assert (copies - 1) * working_set >= cache
    assert copies == 2 or (copies - 2) * working_set < 2 * cache


def factory() -> Any:
    x = torch.randn(64)
    return lambda: x + 1


def test_a_rotation_uses_each_copy_in_turn() -> None:
    made: list[Any] = []

    def make() -> Any:
        x = torch.full((64,), float(len(made)))
        made.append(x)
        return lambda: x + 1

    rotation = rotate(make, working_set=256, cache=300)
    assert (rotation.copies, len(made), rotation.bytes_in_all) == (4, 4, 4 * 256)
    values = [float(rotation.step()[0]) for _ in range(6)]  # type: ignore[index]
    assert values == [1, 2, 3, 4, 1, 2]


def test_copies_that_share_a_tensor_are_refused() -> None:
    shared = torch.randn(64)
    with pytest.raises(OptionError, match=r"share a tensor of shape \(64,\)"):
        rotate(lambda: lambda: shared + 1, working_set=256, cache=300)


def test_copies_beyond_the_memory_allowed_are_refused() -> None:
    with pytest.raises(OptionError, match="Rotating needs 4 copies"):
        rotate(factory, working_set=256, cache=300, limit_bytes=1_000)
    with pytest.raises(OptionError, match="nothing to rotate"):
        rotate(factory, working_set=0, cache=300)


def test_a_cache_of_unknown_size_is_not_flushed() -> None:
    with pytest.raises(EnvironmentLacks, match="cache size of fake-async cannot be read"):
        cache_bytes(FakeAsync())


def test_a_flush_overwrites_more_than_the_cache() -> None:
    flusher = Flusher(open_device("cpu"), size_bytes=1 << 16)
    before = flusher._buffer.clone()
    flusher.flush_and_wait()
    assert torch.equal(flusher._buffer, before + 1)
    assert flusher._buffer.numel() * 4 == 2 << 16
    check = flusher.check()
    assert check.read_bytes == (1 << 16) // 4
    assert check.warm_ns > 0
    with pytest.raises(OptionError, match="at least one byte"):
        Flusher(open_device("cpu"), size_bytes=0)


def test_a_flush_is_believed_only_if_it_makes_a_difference() -> None:
    assert FlushCheck(read_bytes=1, warm_ns=100, flushed_ns=130).works
    assert not FlushCheck(read_bytes=1, warm_ns=100, flushed_ns=103).works
