"""What does torch.compile put around one operator? The whole call, its guards alone, and the code behind them alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CodeType, FunctionType
from typing import Any

from referee.anatomy.ways import Way
from referee.device.host import load_torch

_NAME = "torch.compile"


def compiled_ways(
    function: Callable[..., Any], inside: str, names: Mapping[str, Any], backend: str = "inductor"
) -> list[Way]:
    """``function`` compiled with ``backend``: as it is, gradient wanted, in inference mode; and its parts.

    ``inside`` names its tensors, which ``names`` holds. What guards and code do not explain of the whole is the step
    from Python into the compiled frame and back.
    """
    torch = load_torch()
    # Code of its own each time: the compiler counts how often one piece of code was compiled, and gives up.
    space: dict[str, Any] = {"function": function}
    exec("def compiled(*args):\n    return function(*args)\n", space)
    made = torch.compile(space["compiled"], backend=backend)
    tensors = tuple(names[word.strip()] for word in inside.split(","))
    made(*tensors)
    parts = _parts(space["compiled"], tensors, space, inside, names)
    wanting = {**names, "a": names["a"].clone().requires_grad_()}
    with torch.inference_mode():
        still = {**names, "a": names["a"].clone(), "b": names["b"].clone()}
    call = f"f({inside})"
    return [
        Way(name=_NAME, source=call, names={**names, "f": made}, note="guards and the runtime's wrapper"),
        *parts,
        Way(name=f"{_NAME}, gradient wanted", source=call, names={**wanting, "f": made}),
        Way(name=f"{_NAME}, inference mode", source=call, names={**still, "f": made}, context=torch.inference_mode),
    ]


def _parts(
    function: FunctionType, tensors: tuple[Any, ...], space: dict[str, Any], inside: str, names: Mapping[str, Any]
) -> list[Way]:
    """The guards of the compiled entry and its code, each called alone; why not, where torch does not show them."""
    entry = _entry(function.__code__)
    guards: Any = getattr(entry, "guard_manager", None)
    code = getattr(entry, "code", None)
    if not hasattr(guards, "check") or not isinstance(code, CodeType):
        why = "this torch does not show its compiled entries"
        return [Way(name=f"{_NAME}, its guards", why_not=why), Way(name=f"{_NAME}, behind the guards", why_not=why)]
    return [
        Way(
            name=f"{_NAME}, its guards",
            source="check(values)",
            names={"check": guards.check, "values": {"args": tensors}},
            note="a part: whether the compiled code fits these arguments",
            part=True,
        ),
        Way(
            name=f"{_NAME}, behind the guards",
            source=f"f({inside})",
            names={**names, "f": FunctionType(code, space)},
            note="a part: the runtime's wrapper and the kernel",
            part=True,
        ),
    ]


def _entry(code: CodeType) -> Any:
    """The compiled entry of a function's code, where there is one."""
    try:
        from torch._dynamo.eval_frame import _debug_get_cache_entry_list

        return next(iter(_debug_get_cache_entry_list(code)), None)
    except (ImportError, AttributeError, TypeError):
        return None
