"""What stands for a tensor on a device that is not here? A fake one: shape, strides and dtype, and no memory."""

from __future__ import annotations

import functools
from typing import Any

from referee.device.watching import tensors_in
from referee.precision.tape import Tape

_WRITING = ("__setitem__", "copy_")


class Fakes:
    """Fake counterparts on one device: the same for the same tensor, so that a weight's cast can be kept."""

    def __init__(self, torch: Any, device_type: str, tape: Tape) -> None:
        from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
        from torch.utils.weak import WeakIdKeyDictionary

        self._torch, self.kind, self._tape = torch, FakeTensor, tape
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._device = torch.device(device_type)
        self._made: dict[int, tuple[Any, Any]] = {}
        self._parts: Any = WeakIdKeyDictionary()

    def substitute(self, value: Any) -> Any:
        """``value`` with its tensors replaced, and devices named in it as the other device."""
        torch = self._torch
        if isinstance(value, torch.Tensor):
            return value if self._is_there(value) else self._of(value)
        if isinstance(value, (list, tuple)):
            made = [self.substitute(item) for item in value]
            return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
        if isinstance(value, dict):
            return {key: self.substitute(item) for key, item in value.items()}
        return self._device if isinstance(value, torch.device) else value

    def detour(self, method: Any) -> Any:
        """``method`` carried out on tensors of the meta device: it has a guard, and dtypes and shapes are the same."""

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            # Called by the user the method goes to the recorder first, which comes back here with itself switched off.
            if self._torch._C._len_torch_function_stack():
                return method(*args, **kwargs)
            if not any(self._is_there(leaf) for leaf in tensors_in((args, tuple(kwargs.values())))):
                return method(*args, **kwargs)
            metas = self._to_meta(args)
            result = method(*metas, **self._to_meta(kwargs))
            if method.__name__ in _WRITING:
                self._tape.stands_for(self._origin(args[0]), metas[0])
            made = self.substitute(result)
            if method.__name__ == "__getitem__" and isinstance(made, self._torch.Tensor):
                self._parts[made] = args[0]
            return made

        return call

    def _origin(self, tensor: Any) -> Any:
        """The tensor that ``tensor`` was taken from by indexing, which is what a writing to it changes."""
        while tensor in self._parts:
            tensor = self._parts[tensor]
        return tensor

    def _is_there(self, tensor: Any) -> bool:
        return isinstance(tensor, self.kind) and tensor.device.type == self._device.type

    def _to_meta(self, value: Any) -> Any:
        if isinstance(value, self._torch.Tensor):
            made = self.kind(self.mode, _meta_of(self._torch, value), self._torch.device("meta"))
            self._tape.stands_for(made, value)
            return made
        if isinstance(value, (list, tuple)):
            return type(value)(self._to_meta(item) for item in value)
        if isinstance(value, dict):
            return {key: self._to_meta(item) for key, item in value.items()}
        return value

    def _of(self, tensor: Any) -> Any:
        kept = self._made.get(id(tensor))
        if kept is None:
            meta = _meta_of(self._torch, tensor)
            kept = self._made[id(tensor)] = (tensor, self.kind(self.mode, meta, self._device))
            self._tape.stands_for(kept[1], tensor)
        return kept[1]


def _meta_of(torch: Any, tensor: Any) -> Any:
    """A tensor without memory of the same shape, strides and dtype."""
    from torch.utils._mode_utils import no_dispatch

    with no_dispatch():
        return torch.empty_strided(tuple(tensor.shape), tuple(tensor.stride()), dtype=tensor.dtype, device="meta")
