"""Where does this number come from? A registry of keys, and the record without which no measurement exists.

Each key has a section, a unit, a meaning, and whether two measurements must agree on it to be comparable. What could
not be read is :data:`NOT_READ`, never a guess, and never filled in later from another process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Literal

from referee.errors import OptionError, ProvenanceError
from referee.records.finding import Scalar

NOT_READ = "not read"
"""The value of a key that could not be read on the machine that measured."""

_NO_ACCELERATOR = "none, the CPU alone"
"""What a difference says of the side on which no accelerator took part."""

_MOST_NEAR = 3
"""Keys named as near to one that is none."""

_SHORTEST = 3
"""A name of fewer letters lies within too many others."""

Section = Literal["chip", "accelerator", "method", "software", "switches", "machine_state"]


@dataclass(frozen=True)
class Key:
    """One thing that provenance may state: where it stands, in what unit, and whether it must match."""

    section: Section
    name: str
    doc: str
    unit: str = ""
    must_match: bool = True

    @property
    def path(self) -> str:
        """``section.name``, as it is cited in messages."""
        return f"{self.section}.{self.name}"


_KEYS = (
    Key("chip", "model", "CPU model as the kernel names it"),
    Key("chip", "architecture", "machine architecture"),
    Key("chip", "physical_cores", "physical cores of the machine", "cores", must_match=False),
    Key("chip", "logical_cores", "logical cores of the machine", "cores"),
    Key("chip", "affinity", "logical cores this process may run on", "cores"),
    Key("chip", "numa_node", "NUMA node(s) of those cores", must_match=False),
    Key("chip", "cgroup_cpus", "CPU quota of the control group", "cores"),
    Key("chip", "threads", "intra-op threads in use", "threads"),
    Key("chip", "interop_threads", "inter-op threads", "threads", must_match=False),
    Key("chip", "calibration_ns", "a fixed single-threaded pure-Python loop, timed here", "ns", must_match=False),
    Key("chip", "l2_cache_bytes", "level-2 cache", "bytes", must_match=False),
    Key("chip", "l3_cache_bytes", "last-level cache", "bytes", must_match=False),
    Key("chip", "memory_bytes", "main memory", "bytes", must_match=False),
    Key("accelerator", "name", "device name as its driver gives it"),
    Key("accelerator", "index", "which device of its kind", must_match=False),
    Key("accelerator", "sm_count", "multiprocessors or compute units"),
    Key("accelerator", "memory_bytes", "device memory", "bytes"),
    Key("accelerator", "l2_cache_bytes", "level-2 cache", "bytes"),
    Key("accelerator", "compute_capability", "compute capability or architecture name"),
    Key("accelerator", "pcie_width", "PCIe lanes in use", "lanes", must_match=False),
    Key("accelerator", "pcie_generation", "PCIe generation in use", must_match=False),
    Key("accelerator", "driver", "driver version"),
    Key("accelerator", "sm_clock_mhz", "multiprocessor clock when measured", "MHz", must_match=False),
    Key("accelerator", "memory_clock_mhz", "memory clock when measured", "MHz", must_match=False),
    Key("accelerator", "power_limit_w", "power limit", "W"),
    Key("accelerator", "temperature_c", "temperature when measured", "°C", must_match=False),
    Key("accelerator", "throttle_reasons", "active throttle reasons", must_match=False),
    Key("accelerator", "mig", "MIG mode"),
    Key("accelerator", "numa_node", "NUMA node of the device", must_match=False),
    Key("method", "clock", "which clock the headline number is: settled_amortised, settled_per_call, enqueue, device"),
    Key("method", "settle", "what was awaited, and on what"),
    Key("method", "warmup", "how the warm-up ended", must_match=False),
    Key("method", "calls_per_block", "calls timed between two readings of the clock", "calls", must_match=False),
    Key("method", "block_target_ns", "length a block was aimed at", "ns", must_match=False),
    Key("method", "budget_ns", "wall-clock budget", "ns", must_match=False),
    Key(
        "method",
        "address_layout",
        "where the process lies in memory: fixed, or random (as the system gives it)",
        must_match=False,
    ),
    Key("method", "cache_state", "state of the caches before each call: warm, flushed, rotated"),
    Key("method", "input_fill", "how the inputs were filled"),
    Key("method", "gc", "the garbage collector during the timed window"),
    Key("method", "timer", "the host clock and its resolution", must_match=False),
    Key("method", "overhead_ns", "our own cost per call, measured at start and subtracted", "ns", must_match=False),
    Key("method", "statistic", "what the headline number is of the samples"),
    Key("method", "target", "what was measured", must_match=False),
    Key("method", "parameters", "the target's parameters and their values, as JSON", must_match=False),
    Key("method", "setup", "what ran once before the statement that was measured", must_match=False),
    Key("method", "seed", "the seed of the inputs", must_match=False),
    Key("method", "plan", "which iterations were recorded", must_match=False),
    Key("method", "profiler_options", "what the profiler recorded beyond operators", must_match=False),
    Key(
        "method",
        "profiler_cost_ns",
        "the profiler's own cost per host row (operators, Python functions, annotations)",
        "ns",
        must_match=False,
    ),
    Key("method", "unprofiled_step_ns", "one step without the profiler, timed beside it", "ns", must_match=False),
    Key("method", "rank", "rank of this process in its job", must_match=False),
    Key("method", "world_size", "processes of the job", "processes"),
    Key("method", "clock_offset_ns", "this host's clock minus that of rank 0", "ns", must_match=False),
    Key("method", "clock_offset_error_ns", "how far that offset may be off", "ns", must_match=False),
    Key("software", "torch", "torch version"),
    Key("software", "torch_build", "git commit and build flavour of torch"),
    Key("software", "cuda", "CUDA version of the torch build"),
    Key("software", "cudnn", "cuDNN version"),
    Key("software", "rocm", "ROCm version of the torch build"),
    Key("software", "xla", "torch_xla version"),
    Key("software", "python", "Python version and implementation"),
    Key("software", "referee", "Referee version"),
    Key("software", "os", "operating system", must_match=False),
    Key("software", "git_commit", "commit of the measured code's repository", must_match=False),
    Key("software", "source_digest", "start of the SHA-256 of the measured code's file", must_match=False),
    Key("software", "git_dirty", "whether that tree had uncommitted changes", must_match=False),
    Key("switches", "float32_matmul_precision", "torch.get_float32_matmul_precision()"),
    Key("switches", "tf32_matmul", "TF32 allowed in matrix products"),
    Key("switches", "tf32_cudnn", "TF32 allowed in cuDNN"),
    Key("switches", "cudnn_benchmark", "cuDNN algorithm search"),
    Key("switches", "deterministic", "deterministic algorithms"),
    Key("switches", "default_dtype", "torch.get_default_dtype(): the dtype of tensors made without naming one"),
    Key("switches", "grad_mode", "grad, no_grad or inference_mode around the step"),
    Key("switches", "autocast", "autocast around the step: device and dtype, or off"),
    Key("switches", "autocast_site", "where the autocast context is entered: inside the step, around it, nowhere"),
    Key("switches", "training_mode", "layers that ask for it are in train or in eval mode; none seen: there are none"),
    Key(
        "switches",
        "casts_per_call",
        "changes of floating dtype in one call, by who asked: autocast, explicit, backward",
        must_match=False,
    ),
    Key("switches", "compile", "whether the step is compiled, and how"),
    Key("switches", "allocator", "allocator settings", must_match=False),
    Key("switches", "debugger", "what watches each line, call or operator: a debugger, anomaly mode, a Python mode"),
    Key("switches", "launch_blocking", "CUDA_LAUNCH_BLOCKING or its like"),
    Key("machine_state", "load_1min", "load average over one minute before the measurement", must_match=False),
    Key("machine_state", "governor", "CPU frequency governor", must_match=False),
    Key("machine_state", "cpu_mhz", "CPU frequency when measured", "MHz", must_match=False),
    Key("machine_state", "turbo", "whether turbo is allowed", must_match=False),
    Key(
        "machine_state", "throttled", "whether the control group was throttled during the measurement", must_match=False
    ),
    Key("machine_state", "time_utc", "when the measurement began", must_match=False),
    Key("machine_state", "host", "host name", must_match=False),
    Key("machine_state", "user", "user name", must_match=False),
)

REGISTRY: Mapping[str, Key] = {key.path: key for key in _KEYS}
"""Every key by its path, in the order in which they are shown."""

SECTIONS: tuple[Section, ...] = ("chip", "accelerator", "method", "software", "switches", "machine_state")


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """A tensor that entered the step: role, shape, strides (elements), dtype, device.

    ``role`` is input, parameter, buffer, gradient, state (an optimizer's), or output for one that left it.
    """

    role: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    device: str
    count: int = 1
    """How many tensors of exactly this description entered."""


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Everything needed to believe, compare and repeat a number.

    Missing keys of the registry become :data:`NOT_READ`. ``accelerator`` is ``None`` where only the CPU took part.
    Raises :class:`~referee.errors.ProvenanceError` for a key that the registry does not list, or when dtype, shapes
    or the clock are missing.
    """

    dtype: str
    shapes: tuple[TensorSpec, ...]
    chip: Mapping[str, Scalar]
    method: Mapping[str, Scalar]
    software: Mapping[str, Scalar]
    switches: Mapping[str, Scalar]
    machine_state: Mapping[str, Scalar] = field(default_factory=dict)
    accelerator: Mapping[str, Scalar] | None = None

    def __post_init__(self) -> None:
        if not self.dtype:
            raise ProvenanceError("A measurement needs the dtype it was taken with.")
        if self.method.get("clock") in (None, ""):
            raise ProvenanceError("A measurement needs the clock it was taken with.")
        for section in SECTIONS:
            given: Mapping[str, Scalar] | None = getattr(self, section)
            if given is None:
                continue
            unknown = [name for name in given if f"{section}.{name}" not in REGISTRY]
            if unknown:
                raise ProvenanceError(f"{section}.{unknown[0]} is not a provenance key.")
            full = {key.name: given.get(key.name, NOT_READ) for key in _KEYS if key.section == section}
            object.__setattr__(self, section, full)

    def value(self, path: str) -> Scalar:
        """The value at ``section.name``; :data:`NOT_READ` for any accelerator key where there is no accelerator."""
        section, _, name = path.partition(".")
        found: Mapping[str, Scalar] | None = getattr(self, section)
        return NOT_READ if found is None else found.get(name, NOT_READ)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing in which two provenances differ: the path, and the value on either side."""

    path: str
    a: Scalar
    b: Scalar


def check_keys(paths: Iterable[str]) -> None:
    """Refuse what is neither a key nor a section of keys.

    Raises :class:`~referee.errors.OptionError`, with the keys that may be meant and where all of them stand.
    """
    known = ("dtype", "shapes", *SECTIONS, *REGISTRY)
    for path in paths:
        if path in known:
            continue
        near = _near(path, known)
        meant = f"Did you mean {' or '.join(near)}? " if near else ""
        raise OptionError(
            f"{path} is no provenance key, so it cannot be ignored.",
            hint=f"{meant}All keys stand under `provenance` in any record (--json PATH), in the sections "
            f"{', '.join(SECTIONS)}.",
        )


def _near(path: str, known: Collection[str]) -> list[str]:
    """The keys that may be meant by ``path``: of the same name, with its name in theirs, or spelt nearly like it."""
    name = path.rpartition(".")[2].casefold()
    names = {key: key.rpartition(".")[2] for key in known}
    same = [key for key in known if names[key] == name]
    within = [key for key in known if len(name) >= _SHORTEST and name in names[key]]
    spelt = get_close_matches(path, known, n=_MOST_NEAR)
    alike = get_close_matches(name, names.values(), n=_MOST_NEAR)
    by_name = [key for close in alike for key in known if names[key] == close]
    return list(dict.fromkeys(same or (*within, *spelt, *by_name)))[:_MOST_NEAR]


def differences(a: Provenance, b: Provenance, *, ignoring: Collection[str] = ()) -> tuple[Difference, ...]:
    """What else differs? The keys that must match and do not, except those in ``ignoring`` (what is being compared).

    A name in ``ignoring`` may be that of a whole section. Where an accelerator took part on one side alone that is one
    difference, under ``accelerator.name``.
    """
    found: list[Difference] = []
    for path, left, right in _pairs(a, b):
        if not ignoring_path(path, ignoring) and _without_calls(path, left) != _without_calls(path, right):
            found.append(Difference(path=path, a=left, b=right))
    return tuple(found)


def ignoring_path(path: str, ignoring: Collection[str]) -> bool:
    """Whether a key may differ: it is named itself, or its whole section is (``accelerator``)."""
    return path in ignoring or path.partition(".")[0] in ignoring


def _without_calls(path: str, value: Scalar) -> Scalar:
    """A statistic without the calls that a block is the mean of: they are a key of their own, which need not match."""
    return str(value).partition(", each the mean of")[0] if path == "method.statistic" else value


def _pairs(a: Provenance, b: Provenance) -> Iterable[tuple[str, Scalar, Scalar]]:
    yield "dtype", a.dtype, b.dtype
    yield "shapes", _any_order(a.shapes), _any_order(b.shapes)
    alone = (a.accelerator is None, b.accelerator is None)
    if alone[0] != alone[1]:
        yield "accelerator.name", _accelerator(a), _accelerator(b)
    for path, key in REGISTRY.items():
        if key.must_match and not (any(alone) and key.section == "accelerator"):
            yield path, a.value(path), b.value(path)


def _accelerator(provenance: Provenance) -> Scalar:
    """The accelerator that took part, if one did; that its name was not read does not make it none."""
    if provenance.accelerator is None:
        return _NO_ACCELERATOR
    name = provenance.value("accelerator.name")
    return "one whose name was not read" if name == NOT_READ else name


def _any_order(shapes: Iterable[TensorSpec]) -> str:
    """The inputs in a line, sorted: which of them is read first is nothing in which two steps may not differ."""
    return describe_shapes(sorted(shapes, key=lambda spec: (spec.shape, spec.dtype)))


def describe_shapes(shapes: Iterable[TensorSpec], *, roles: Collection[str] = ("input",)) -> str:
    """The inputs in a line: ``(64, 512) float32 · 2 × (8,) int64``; ``none seen`` where no tensor entered."""
    parts = []
    for spec in shapes:
        if spec.role in roles:
            times = f"{spec.count} × " if spec.count > 1 else ""
            parts.append(f"{times}{spec.shape} {spec.dtype}")
    return " · ".join(parts) or "none seen"
