"""Which switches hold for everything that runs in this process, and can they be put back as they were?

A factory or a step that sets one (matmul precision, threads, grad mode, default dtype, …) sets it for whatever runs
afterwards too: for the other side of a comparison as well. So what is in force is read as a whole, held against what
was in force before, and put in force again. Nothing is loaded for the question: without torch there is no state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

from referee.device.switches import autocast, debugger, grad_mode, loaded_torch, read_flag
from referee.records.finding import Finding, Scalar
from referee.records.provenance import Difference

_PRECISIONS = (
    "",
    "cuda.matmul",
    "cudnn",
    "cudnn.conv",
    "cudnn.rnn",
    "mkldnn",
    "mkldnn.matmul",
    "mkldnn.conv",
)
"""Where ``torch.backends`` keeps an ``fp32_precision``: several of them move with one call of the older switches."""

_THREADS = "chip.threads"


@dataclass(frozen=True, kw_only=True)
class State:
    """The switches in force: ``values`` by the path under which provenance states them, as provenance words them."""

    values: Mapping[str, Scalar] = field(default_factory=dict)
    _settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What is needed to put each in force again."""

    def moved(self, later: State) -> tuple[Difference, ...]:
        """What differs in ``later``."""
        return tuple(
            Difference(path=path, a=value, b=later.values[path])
            for path, value in self.values.items()
            if path in later.values and later.values[path] != value
        )

    def put(self, paths: Collection[str] | None = None) -> None:
        """Put these switches in force (those of ``paths`` alone, where given), in this process and on this thread."""
        torch = loaded_torch()
        if torch is None:
            return
        # Where the process has frozen its backends' flags (torch's own test helpers do), they move in here alone.
        unfrozen = getattr(torch.backends, "__allow_nonbracketed_mutation", nullcontext)
        with unfrozen():
            for path, setting in self._settings.items():
                if (paths is None or path in paths) and _READERS[path](torch) != setting:
                    _SETTERS[path](torch, setting)


def read_state() -> State:
    """The switches in force now, in this process and on this thread."""
    torch = loaded_torch()
    if torch is None:
        return State()
    settings = {path: read(torch) for path, read in _READERS.items()}
    backends = torch.backends
    return State(
        values={
            "switches.float32_matmul_precision": settings["switches.float32_matmul_precision"][0],
            "switches.tf32_matmul": read_flag(backends.cuda.matmul, "allow_tf32"),
            "switches.tf32_cudnn": read_flag(backends.cudnn, "allow_tf32"),
            "switches.cudnn_benchmark": settings["switches.cudnn_benchmark"],
            "switches.deterministic": any(settings["switches.deterministic"]),
            "switches.default_dtype": str(settings["switches.default_dtype"]).removeprefix("torch."),
            "switches.grad_mode": grad_mode(torch),
            "switches.autocast": _autocast_words(torch),
            "switches.debugger": debugger(torch),
            _THREADS: settings[_THREADS],
        },
        _settings=settings,
    )


@contextmanager
def kept_state() -> Iterator[State]:
    """Whatever is set inside is put back at the end; gives what is in force now."""
    before = read_state()
    try:
        yield before
    finally:
        restore(before)


def restore(before: State) -> None:
    """Put in force what was, if anything has moved since."""
    moved = [difference.path for difference in before.moved(read_state())]
    if moved:
        before.put(moved)


def switch_findings(moved: Collection[Difference], *, name: str = "The step") -> tuple[Finding, ...]:
    """What is to be told of a step that sets switches for the whole process while it runs."""
    if not moved:
        return ()
    words = "; ".join(f"{d.path}: {d.a}, then {d.b}" for d in moved)
    return (
        Finding(
            code="switch-set",
            severity="warning",
            message=f"{name} sets switches that hold for all that runs after it ({words}).",
            evidence={d.path: f"{d.a} / {d.b}" for d in moved},
            hint="Set them before the step, or around it with a context manager that puts them back.",
        ),
    )


def _read_precision(torch: Any) -> tuple[Any, dict[str, str]]:
    """The older switch as a word, and each of the newer ones that this torch has."""
    newer: dict[str, str] = {}
    for place in _PRECISIONS:
        owner = torch.backends
        for part in place.split(".") if place else ():
            owner = getattr(owner, part, None)
        with suppress(AttributeError, RuntimeError):
            newer[place] = owner.fp32_precision
    try:
        return torch.get_float32_matmul_precision(), newer
    except RuntimeError:  # the newer ones were set so that no older word says it
        return "mixed", newer


def _set_precision(torch: Any, setting: tuple[Any, dict[str, str]]) -> None:
    word, newer = setting
    if word != "mixed":
        torch.set_float32_matmul_precision(word)
    for place, precision in newer.items():
        owner = torch.backends
        for part in place.split(".") if place else ():
            owner = getattr(owner, part)
        with suppress(AttributeError, RuntimeError):
            owner.fp32_precision = precision


def _set_flag(owner: Any, name: str, value: Scalar) -> None:
    if value != "mixed" and read_flag(owner, name) != value:
        setattr(owner, name, value)


def _read_deterministic(torch: Any) -> tuple[bool, bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        bool(torch.backends.cudnn.deterministic),
    )


def _set_deterministic(torch: Any, setting: tuple[bool, bool, bool]) -> None:
    enabled, warn_only, cudnn = setting
    torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
    torch.backends.cudnn.deterministic = cudnn


_inference_guards: list[Any] = []
"""Guards by which inference mode was entered or left again; each holds until it dies."""


def _set_grad_mode(torch: Any, setting: tuple[bool, bool]) -> None:
    inference, grad = setting
    if torch.is_inference_mode_enabled() != inference:
        guard = torch.inference_mode(inference)
        guard.__enter__()
        _inference_guards.append(guard)
    torch.set_grad_enabled(grad)


def _kinds(torch: Any) -> tuple[str, ...]:
    return ("cpu", "cuda") if torch.version.cuda else ("cpu",)


def _autocast_words(torch: Any) -> str:
    on = [state for kind in _kinds(torch) if (state := autocast(torch, kind)) != "off"]
    return ", ".join(on) or "off"


def _read_autocast(torch: Any) -> dict[str, tuple[bool, Any]]:
    return {kind: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _kinds(torch)}


def _set_autocast(torch: Any, setting: Mapping[str, tuple[bool, Any]]) -> None:
    for kind, (enabled, dtype) in setting.items():
        torch.set_autocast_enabled(kind, enabled)
        torch.set_autocast_dtype(kind, dtype)


def _read_watching(torch: Any) -> tuple[bool, bool, Any]:
    """Anomaly mode, its check for NaN, and the default device: of all that watches, what a switch sets."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled(), getattr(context, "device", None)


def _set_watching(torch: Any, setting: tuple[bool, bool, Any]) -> None:
    anomaly, check_nan, device = setting
    now = _read_watching(torch)
    torch.set_anomaly_enabled(anomaly, check_nan)
    if now[2] != device:
        torch.set_default_device(device)


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "switches.float32_matmul_precision": _read_precision,
    "switches.tf32_matmul": lambda torch: read_flag(torch.backends.cuda.matmul, "allow_tf32"),
    "switches.tf32_cudnn": lambda torch: read_flag(torch.backends.cudnn, "allow_tf32"),
    "switches.cudnn_benchmark": lambda torch: bool(torch.backends.cudnn.benchmark),
    "switches.deterministic": _read_deterministic,
    "switches.default_dtype": lambda torch: torch.get_default_dtype(),
    "switches.grad_mode": lambda torch: (torch.is_inference_mode_enabled(), torch.is_grad_enabled()),
    "switches.autocast": _read_autocast,
    "switches.debugger": _read_watching,
    _THREADS: lambda torch: torch.get_num_threads(),
}

_SETTERS: Mapping[str, Callable[[Any, Any], None]] = {
    "switches.float32_matmul_precision": _set_precision,
    "switches.tf32_matmul": lambda torch, value: _set_flag(torch.backends.cuda.matmul, "allow_tf32", value),
    "switches.tf32_cudnn": lambda torch, value: _set_flag(torch.backends.cudnn, "allow_tf32", value),
    "switches.cudnn_benchmark": lambda torch, value: setattr(torch.backends.cudnn, "benchmark", value),
    "switches.deterministic": _set_deterministic,
    "switches.default_dtype": lambda torch, value: torch.set_default_dtype(value),
    "switches.grad_mode": _set_grad_mode,
    "switches.autocast": _set_autocast,
    "switches.debugger": _set_watching,
    _THREADS: lambda torch, value: torch.set_num_threads(value),
}
"""In this order: TF32 flags move with the precision, so that they are put after it."""
