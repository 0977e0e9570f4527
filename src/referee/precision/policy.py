"""Which operators does autocast treat, and how, for each kind of device? Found by behaviour, on any build of torch.

torch tells which operators are registered under a device's autocast key, not what is done to them. So each one is
called with float32, with low-precision and with mixed arguments, and what autocast does to them before the operator
runs is read: the call ends at the first operator that is no cast, so no kernel runs and shapes need not fit. For
devices that are not here the arguments are fake tensors, which have a device but no memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from referee.device.dispatch_mode import ListeningMode
from referee.device.host import load_torch
from referee.precision.control import autocast_state

KEYS = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU", "xpu": "AutocastXPU", "mps": "AutocastMPS"}
"""Dispatch key of autocast by kind of device."""

LOWER, FLOAT32, FLOAT32_OUTPUT, PROMOTE, BANNED = "lower precision", "float32", "float32 result", "promote", "banned"
UNCLASSED = "unclassed"

_SIDE = 2
"""Size of each dimension of the arguments."""

_CALLS = {
    "conv_tbc": "conv_tbc",
    "cross_entropy": "cross_entropy_loss",
    "nll_loss": "nll_loss_nd",
    "matmul": "matmul",
    "rmatmul": "matmul",
    "pow": "pow",
    "rpow": "pow",
    "concat": "cat",
    "concatenate": "cat",
    "grid_sample": "grid_sampler",
    "multi_head_attention_forward": "linear",
    "binary_cross_entropy": "binary_cross_entropy",
}
"""Python names whose operator is called otherwise."""


@dataclass(frozen=True, kw_only=True)
class Policies:
    """What autocast does on one kind of device, by operator (``aten::addmm``, overloads apart)."""

    device_type: str
    by_op: dict[str, str] = field(default_factory=dict)

    def of_call(self, name: str) -> str:
        """The policy for the Python call ``name``; an empty string where autocast leaves it alone."""
        name = name.rstrip("_")
        for candidate in (name, _CALLS.get(name, name)):
            for full in (f"aten::{candidate}", f"aten::{candidate}.Tensor"):
                if full in self.by_op:
                    return self.by_op[full]
            for op, policy in self.by_op.items():
                if op.partition(".")[0] == f"aten::{candidate}":
                    return policy
        return ""

    @property
    def unclassed(self) -> tuple[str, ...]:
        """Operators that are registered and whose treatment was not seen."""
        return tuple(op for op, policy in self.by_op.items() if policy == UNCLASSED)


@cache
def policies(device_type: str) -> Policies:
    """The policies for ``device_type``; none where torch knows no autocast for it. Takes about a second."""
    torch = load_torch()
    key = KEYS.get(device_type)
    if key is None:
        return Policies(device_type=device_type)
    names = registered(key)
    maker = _maker(torch, device_type)
    found = {name: _classify(torch, name, device_type, maker) for name in names}
    return Policies(device_type=device_type, by_op=found)


def registered(key: str) -> tuple[str, ...]:
    """The operators with a kernel of their own under the dispatch key ``key``, overloads included."""
    torch = load_torch()
    names = (name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))
    return tuple(sorted(n for n in names if torch._C._dispatch_has_kernel_for_dispatch_key(n, key)))


class _Reached(BaseException):
    """The first operator that is no cast."""


class _Stop(ListeningMode):
    """Ends the call at the first cast, or at the first operator that is none, and says which it was."""

    def __init__(self) -> None:
        super().__init__()
        self.cast_to: Any = None
        self.asked: Any = None
        """The dtype that the operator is asked to compute or return in."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        if name.startswith("prim::"):  # attributes of a fake tensor
            return func(*args, **kwargs)
        if name == "aten::_to_copy":
            self.cast_to = kwargs.get("dtype")
        else:
            self.asked = _asked_dtype(func, args, kwargs)
        raise _Reached


def _asked_dtype(func: Any, args: Any, kwargs: Any) -> Any:
    """``dtype`` of the call, by keyword or position; float32 where a softmax is to convert from half."""
    names = [argument.name for argument in func._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return load_torch().float32 if given.get("half_to_float") else given.get("dtype")


def _classify(torch: Any, name: str, device_type: str, maker: Any) -> str:
    """float16 arguments under autocast to bfloat16 tell lowering from widening in one call; mixed ones show promotion.

    An operator that is treated shows itself at its first cast, so none runs further than that.
    """
    half, low, wide = torch.float16, torch.bfloat16, torch.float32
    op = _overload(torch, name)
    if op is None:
        return UNCLASSED
    for dtypes, policies_of in (((half,), {low: LOWER, wide: FLOAT32}), ((low, wide), {wide: PROMOTE})):
        stop = _Stop()
        args, kwargs = _arguments(torch, op._schema, maker, dtypes)
        try:
            with torch.no_grad(), autocast_state(device_type, low), stop:
                op(*args, **kwargs)
        except _Reached:
            pass
        except Exception as error:  # noqa: BLE001 - operators refuse the arguments in every way; casts come before
            if "unsafe to autocast" in str(error):
                return BANNED
        if stop.cast_to in policies_of:
            return policies_of[stop.cast_to]
        if stop.asked == wide:
            return FLOAT32_OUTPUT
    return UNCLASSED


def _overload(torch: Any, name: str) -> Any:
    base, _, overload = name.removeprefix("aten::").partition(".")
    packet = getattr(torch.ops.aten, base, None)
    return getattr(packet, overload or "default", None)


def _arguments(torch: Any, schema: Any, maker: Any, dtypes: tuple[Any, ...]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of the right types for ``schema``; tensors take ``dtypes`` in turn."""
    made = 0

    def tensor() -> Any:
        nonlocal made
        made += 1
        return maker(dtypes[(made - 1) % len(dtypes)])

    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument in schema.arguments:
        value = _value(torch, str(argument.type), argument, tensor)
        if argument.kwarg_only:
            if not argument.has_default_value():
                kwargs[argument.name] = value
        else:
            args.append(value)
    return args, kwargs


def _value(torch: Any, kind: str, argument: Any, tensor: Any) -> Any:
    if kind == "Tensor":
        return tensor()
    if kind in ("List[Tensor]", "List[Optional[Tensor]]"):
        return [tensor(), tensor()]
    if argument.name == "dim" and kind == "Optional[int]":  # ``cross`` warns where it is left out
        return 0
    if argument.has_default_value():
        return argument.default_value
    if kind.startswith("Optional["):
        # An optional tensor that is left out is cast as little as one that is there: leave it out.
        return None
    plain: dict[str, Any] = {
        "int": 1,
        "SymInt": 1,
        "float": 1.0,
        "bool": False,
        "number": 1.0,
        "str": "ij,jk->ik",
        "List[int]": [1],
        "List[bool]": [False, False, False],
    }
    return plain.get(kind, [1] if kind.startswith("List") else 1)


def _maker(torch: Any, device_type: str) -> Any:
    """Makes a small tensor of a dtype on the device: a real one on the CPU, a fake one elsewhere."""
    if device_type == "cpu":
        return lambda dtype: torch.ones((_SIDE, _SIDE), dtype=dtype)
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    mode = FakeTensorMode()
    return lambda dtype: FakeTensor(
        mode, torch.empty((_SIDE, _SIDE), dtype=dtype, device="meta"), torch.device(device_type)
    )
