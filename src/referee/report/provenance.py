"""Under which circumstances was it measured? Provenance as blocks, with what could not be read named as such."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from referee.records.document import Block, Column, Fact, Facts, Heading, Paragraph, Table
from referee.records.finding import Scalar
from referee.records.provenance import NOT_READ, REGISTRY, SECTIONS, Difference, Provenance, Section, TensorSpec
from referee.report.wording import clock_name, plural
from referee.units import format_bytes, format_ns, format_quantity

_TITLES: dict[Section, str] = {
    "chip": "Chip",
    "accelerator": "Accelerator",
    "method": "Method",
    "software": "Software",
    "switches": "Switches",
    "machine_state": "Machine's state",
}

_NAMES = {
    "cgroup_cpus": "CPU quota",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "cudnn_benchmark": "cuDNN benchmark",
    "gc": "garbage collector",
    "l2_cache_bytes": "L2 cache",
    "l3_cache_bytes": "L3 cache",
    "load_1min": "load (1 min)",
    "mig": "MIG",
    "numa_node": "NUMA node",
    "pcie_generation": "PCIe generation",
    "pcie_width": "PCIe width",
    "cpu_mhz": "CPU clock",
    "python": "Python",
    "referee": "Referee",
    "rocm": "ROCm",
    "sm_clock_mhz": "SM clock",
    "sm_count": "SMs or CUs",
    "tf32_cudnn": "TF32 in cuDNN",
    "tf32_matmul": "TF32 in matmul",
    "time_utc": "time (UTC)",
    "xla": "XLA",
}
"""Names that underscores replaced by spaces would spell wrongly."""

_UNITS = ("_ns", "_bytes", "_mhz", "_w", "_c")
_MOST_INPUTS = 8
_MOST_DIFFERENCES = 12
_BARE = {("chip", "model"), ("chip", "architecture"), ("accelerator", "name")}
"""Values that name themselves."""


def provenance_blocks(provenance: Provenance) -> tuple[Block, ...]:
    """Everything stated about where a number comes from: a fact for each section, and what was not read."""
    sections: dict[Section, Mapping[str, Scalar]] = {}
    for section in SECTIONS:
        values: Mapping[str, Scalar] | None = getattr(provenance, section)
        if values is not None:
            sections[section] = values
    sections["method"] = {**sections["method"], "clock": clock_name(provenance)}
    facts = [*_tensor_facts(provenance), *section_facts(sections)]
    if provenance.accelerator is None:
        facts.append(Fact(label="Accelerator", value="none took part"))
    return Heading(text="Provenance"), Facts(facts=tuple(facts)), *not_read(sections)


def section_facts(sections: Mapping[Section, Mapping[str, Scalar]]) -> tuple[Fact, ...]:
    """What was read, a fact for each section."""
    facts = []
    for section, values in sections.items():
        read = (_item(section, name, value) for name, value in values.items() if _was_read(value))
        facts.append(Fact(label=_TITLES[section], value=" · ".join(read) or NOT_READ))
    return tuple(facts)


def not_read(sections: Mapping[Section, Mapping[str, Scalar]]) -> tuple[Block, ...]:
    """One paragraph that names what could not be read; nothing where everything was."""
    missing = [_name(name) for values in sections.values() for name, value in values.items() if not _was_read(value)]
    return (Paragraph(text=f"Not read: {_listed(missing)}.", tone="note"),) if missing else ()


def difference_blocks(
    differences: Iterable[tuple[str, Difference]], *, a: str = "A", b: str = "B"
) -> tuple[Block, ...]:
    """What else differs between two provenances, by the name of the candidate; nothing where nothing does."""
    rows = [(name, d.path, format_quantity(d.a), format_quantity(d.b)) for name, d in differences]
    if not rows:
        return ()
    named = len({name for name, *_ in rows}) > 1
    columns = (
        Column(title="Candidate", fit="shorten", priority=2),
        Column(title="Key"),
        Column(title=a, fit="wrap"),
        Column(title=b, fit="wrap"),
    )
    shown = rows[:_MOST_DIFFERENCES]
    left = len(rows) - len(shown)
    return (
        Heading(text="What else differs"),
        Table(
            columns=columns if named else columns[1:],
            rows=tuple(shown) if named else tuple(row[1:] for row in shown),
            caption=f"{plural(left, 'more difference')} in the JSON." if left else "",
        ),
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _was_read(value: Scalar) -> bool:
    return value not in (NOT_READ, None, "")


def _name(name: str) -> str:
    if name in _NAMES:
        return _NAMES[name]
    for suffix in _UNITS:
        name = name.removesuffix(suffix)
    return name.replace("_", " ")


def _item(section: Section, name: str, value: Scalar) -> str:
    shown = _value(section, name, value)
    return shown if (section, name) in _BARE else f"{_name(name)} {shown}"


def _value(section: Section, name: str, value: Scalar) -> str:
    key = REGISTRY.get(f"{section}.{name}")
    unit = key.unit if key else ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if unit == "ns":
            return format_ns(value)
        if unit == "bytes":
            return format_bytes(value)
        # Cores, threads and calls are counted by the name already.
        return format_quantity(value, "" if unit in ("cores", "threads", "calls") else unit)
    return format_quantity(value)


def _tensor_facts(provenance: Provenance) -> tuple[Fact, ...]:
    """The inputs one by one, what else entered as totals by role."""
    facts = [Fact(label="dtype", value=provenance.dtype)]
    inputs = [spec for spec in provenance.shapes if spec.role == "input"]
    facts += [Fact(label="Input", value=_tensor(spec)) for spec in inputs[:_MOST_INPUTS]]
    if len(inputs) > _MOST_INPUTS:
        facts.append(Fact(label="and", value=f"{len(inputs) - _MOST_INPUTS} more kinds of input; the JSON lists all"))
    if not inputs:
        facts.append(Fact(label="Inputs", value="none seen"))
    for role in dict.fromkeys(spec.role for spec in provenance.shapes if spec.role != "input"):
        of_role = [spec for spec in provenance.shapes if spec.role == role]
        facts.append(Fact(label=f"{role.capitalize()}s", value=_total(of_role)))
    return tuple(facts)


def _tensor(spec: TensorSpec) -> str:
    times = f"{spec.count} × " if spec.count > 1 else ""
    return f"{times}{spec.shape} {spec.dtype}, strides {spec.stride}, on {spec.device}"


def _total(specs: list[TensorSpec]) -> str:
    count = sum(spec.count for spec in specs)
    elements = sum(spec.count * prod(spec.shape) for spec in specs)
    largest = max(specs, key=lambda spec: prod(spec.shape))
    kinds = _listed(f"{spec.dtype} on {spec.device}" for spec in specs)
    return f"{plural(count, 'tensor')}, {plural(elements, 'element')}, {kinds}; the largest {largest.shape}"
