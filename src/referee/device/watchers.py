"""What looks on while a step computes, and takes time of its own? Tracers, anomaly mode, and modes written in Python.

Each of them is met at every line, operator or call: left on by mistake, it makes a step several times slower, and
nothing in its operators shows why.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from referee.records.finding import Finding

_MONITORING_TOOLS = 6
"""Tool ids that ``sys.monitoring`` has (Python 3.12 and later)."""
_OURS = "referee."

_KINDS: tuple[tuple[str, str, str], ...] = (
    ("trace function", "a trace function sees every line of Python", "detach the debugger or the coverage run"),
    ("profile function", "a profile function sees every call of Python", "take Python's profiler out"),
    ("sys.monitoring", "a tool follows Python's events", "detach the debugger or the coverage run"),
    (
        "anomaly mode",
        "anomaly mode keeps a traceback for every operator and looks at every gradient for NaN",
        "torch.autograd.set_detect_anomaly(False)",
    ),
    (
        "default device",
        "a default device is a mode through which every call of torch goes in Python",
        "name the device where tensors are made, instead of torch.set_default_device or with torch.device(…)",
    ),
    ("function mode", "a function mode sees every call of torch in Python", "leave the mode"),
    ("dispatch mode", "a dispatch mode sees every operator in Python", "leave the mode"),
)
"""By how the name of a watcher begins: what it does, and how to be rid of it."""


def read_watchers(torch: Any) -> tuple[str, ...]:
    """What watches this thread now, by name, our own modes apart; ``torch`` is ``None`` where it is not loaded."""
    found = []
    if sys.gettrace() is not None:
        found.append("trace function")
    if sys.getprofile() is not None:
        found.append("profile function")
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is not None:
        tools = (monitoring.get_tool(number) for number in range(_MONITORING_TOOLS))
        found += [f"sys.monitoring tool {name}" for name in tools if name]
    if torch is not None:
        if torch.is_anomaly_enabled():
            found.append("anomaly mode")
        found += _modes(torch)
    return tuple(dict.fromkeys(found))


def _modes(torch: Any) -> list[str]:
    """The modes that are entered, those outermost first."""
    # Private, but the only way to ask. A module that is not loaded yet has no mode that is entered.
    functions = sys.modules.get("torch.overrides")
    dispatch = sys.modules.get("torch.utils._python_dispatch")
    entered = []
    if functions is not None and torch._C._len_torch_function_stack():
        entered += [_named(mode, "function mode") for mode in functions._get_current_function_mode_stack()]
    if dispatch is not None and torch._C._len_torch_dispatch_stack():
        entered += [_named(mode, "dispatch mode") for mode in dispatch._get_current_dispatch_mode_stack()]
    return [name for name in entered if name]


def _named(mode: object, kind: str) -> str:
    """A mode in words; empty for one of ours."""
    if type(mode).__module__.startswith(_OURS):
        return ""
    if type(mode).__name__ == "DeviceContext":
        return f"default device {getattr(mode, 'device', '')}".rstrip()
    return f"{kind} {type(mode).__name__}"


@contextmanager
def entering() -> Iterator[dict[str, None]]:
    """Gives the modes that are entered meanwhile, by name: those inside a step nobody sees from around it."""
    # A step is about to run, so torch is loaded; of these parts it loads the last when a device is first a context.
    functions = import_module("torch.overrides").TorchFunctionMode
    dispatch = import_module("torch.utils._python_dispatch").TorchDispatchMode
    devices = import_module("torch.utils._device").DeviceContext
    found: dict[str, None] = {}
    # A device as a context is put in force below Python: it is seen as it is made.
    noted = (
        (functions, "__enter__", "function mode"),
        (dispatch, "__enter__", "dispatch mode"),
        (devices, "__init__", "function mode"),
    )
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in noted]

    def noting(method: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def called(mode: Any, *args: Any, **kwargs: Any) -> Any:
            result = method(mode, *args, **kwargs)
            if name := _named(mode, kind):
                found[name] = None
            return result

        return called

    for owner, name, kind in noted:
        setattr(owner, name, noting(getattr(owner, name), kind))
    try:
        yield found
    finally:
        for owner, name, method in before:
            setattr(owner, name, method)


def watcher_findings(watchers: Sequence[str]) -> tuple[Finding, ...]:
    """What is to be told of a step that something watches."""
    if not watchers:
        return ()
    told = [kind for kind in _KINDS if any(name.startswith(kind[0]) for name in watchers)]
    return (
        Finding(
            code="watched",
            severity="warning",
            message=f"The time holds what watching costs ({', '.join(watchers)}): "
            f"{'; '.join(what for _, what, _ in told)}.",
            evidence={"watchers": ", ".join(watchers)},
            hint=f"Measure without: {'; '.join(dict.fromkeys(how for _, _, how in told))}.",
        ),
    )
