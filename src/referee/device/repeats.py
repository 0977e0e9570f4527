"""Does a repeated call do its work again? Seen from what it dispatches and hands back, not from its time.

Time alone cannot tell where a call returns when it is done: a first call on new inputs touches memory that no page has
been mapped to, and may take two hundred times as long as a repeated one that does all its work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

from referee.device.discover import discover
from referee.device.host import load_torch
from referee.device.protocol import Repeat
from referee.device.settle import find_leaves

_COPIES = frozenset(
    f"aten::{name}" for name in ("clone", "copy_", "_to_copy", "alias", "detach", "view", "empty_like", "empty_strided")
)
"""What hands out a result that is kept without computing it."""

_LOOKED_AT = 1 << 16
"""Bytes of a result that are looked at: what writes it, writes its beginning."""


def see_repeat(step: Callable[[], object], fresh: Callable[[], Callable[[], object]]) -> Repeat | None:
    """Does ``step``, called before, do again what a step on fresh inputs does? ``None`` where nothing shows it.

    Operators below autograd are counted in one call of each. Where there are none to count (compiled code, other
    libraries), two outputs of ``step`` are held side by side: tensors in new memory, or written to since, were made
    again. Calls ``step`` three times at most; what it raises passes through.
    """
    counted = None
    if not discover(step).compiled:
        counted = 0
        first, again = _dispatched(fresh()), _dispatched(step)
        if first:
            return _compare(first, again, step=step)
    made = _makes_anew(step)
    return None if made is None else Repeat(again="all" if made else "none", first_ops=counted, again_ops=counted)


def hands_out_kept(step: Callable[[], object]) -> bool:
    """Does a call return tensors that it neither made nor wrote to? For a step of which no operator was seen.

    Another library's kernel may write into memory that torch takes for untouched. So floating-point results are
    changed, bit by bit, and put back after one call: what is still changed then was not written. Others are not (a
    kernel may read its addresses from them) and count as not written. Calls ``step`` three times.
    """
    torch = load_torch()
    before = find_leaves(step(), torch.Tensor)
    marks = [_mark(tensor) for tensor in before]
    after = find_leaves(step(), torch.Tensor)
    if not before or marks != [_mark(tensor) for tensor in after]:
        return False
    try:
        changed = [_bytes(tensor) for tensor in after if tensor.is_floating_point() or tensor.is_complex()]
    except (RuntimeError, NotImplementedError):  # without memory that can be seen, as recorded tensors are
        return True
    saved = [memory.clone() for memory in changed]
    try:
        for memory in changed:
            memory.bitwise_not_()
        step()
        return all(torch.equal(memory, was.bitwise_not()) for memory, was in zip(changed, saved, strict=True))
    finally:
        for memory, was in zip(changed, saved, strict=True):
            memory.copy_(was)


def _bytes(tensor: Any) -> Any:
    """The first bytes from where a tensor begins, as a tensor of their own: autograd counts no write to them."""
    storage = tensor.untyped_storage()
    begin = tensor.storage_offset() * tensor.element_size()
    count = min(_LOOKED_AT, storage.nbytes() - begin)
    return load_torch().empty(0, dtype=load_torch().uint8, device=tensor.device).set_(storage, begin, (count,))


def _compare(first: Counter[str], again: Counter[str], *, step: Callable[[], object]) -> Repeat:
    how: Literal["all", "part", "none"] = "all"
    if first - again:
        # What was computed again into memory of its own was not kept, whatever else was.
        how = "part" if set(again) - _COPIES and _makes_anew(step) else "none"
    return Repeat(again=how, first_ops=first.total(), again_ops=again.total())


def _dispatched(step: Callable[[], object]) -> Counter[str]:
    """The operators of one call, by name."""
    load_torch()
    from referee.device.dispatch_mode import ListeningMode

    names: Counter[str] = Counter()

    class Count(ListeningMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names[func._schema.name] += 1
            return func(*args, **(kwargs or {}))

    with Count():
        step()
    return names


def _makes_anew(step: Callable[[], object]) -> bool | None:
    """Whether of two outputs, both held, any tensor lies in new memory or was written to; ``None`` without tensors."""
    torch = load_torch()
    before = find_leaves(step(), torch.Tensor)
    marks = [_mark(tensor) for tensor in before]
    after = [_mark(tensor) for tensor in find_leaves(step(), torch.Tensor)]
    if not before or None in marks or None in after:
        return None
    return marks != after


def _mark(tensor: Any) -> tuple[int, int] | None:
    """Where a tensor lies and how often it was written to; ``None`` where it does not keep count."""
    try:
        return tensor.untyped_storage().data_ptr(), tensor._version
    except (RuntimeError, NotImplementedError):  # made in inference mode, or without a storage of its own
        return None
