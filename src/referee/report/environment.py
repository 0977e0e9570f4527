"""What is this machine, and what can be measured on it? The environment as a document."""

from __future__ import annotations

from collections.abc import Mapping

from referee.records.document import Column, Document, Fact, Facts, Heading, Headline, Table
from referee.records.environment import Environment
from referee.records.finding import Scalar
from referee.records.provenance import Section
from referee.report.findings import finding_blocks
from referee.report.provenance import not_read, section_facts
from referee.report.wording import plural
from referee.units import format_quantity


def compose_environment(environment: Environment) -> Document:
    """The machine as a document: the devices first."""
    here = [device.name for device in environment.devices if device.available]
    cores = format_quantity(environment.chip.get("affinity"), "cores this process may use")
    sections: dict[Section, Mapping[str, Scalar]] = {
        "chip": environment.chip,
        "software": environment.software,
        "switches": environment.switches,
        "machine_state": environment.machine_state,
    }
    return Document(
        title="Environment",
        blocks=(
            Headline(
                figure=f"{plural(len(here), 'device')} to measure on" if here else "Nothing to measure on",
                sentence=f"Present: {', '.join(here) or 'none'}.",
                context=(f"{environment.chip.get('model')}, {cores}", f"torch {environment.software.get('torch')}"),
                tone="good" if here else "warn",
            ),
            Heading(text="Devices"),
            _devices(environment),
            Heading(text="Optional parts"),
            Facts(facts=_extras(environment)),
            *finding_blocks(environment.findings),
            Heading(text="The machine"),
            Facts(facts=section_facts(sections)),
            *not_read(sections),
        ),
    )


def _devices(environment: Environment) -> Table:
    rows = tuple(
        (device.name, "yes" if device.available else "no", device.detail, device.settling)
        for device in environment.devices
    )
    columns = (
        Column(title="Device"),
        Column(title="Here"),
        Column(title="What it is, or what is missing", fit="wrap"),
        Column(title="How it is settled", fit="wrap", priority=2),
    )
    return Table(columns=columns, rows=rows)


def _extras(environment: Environment) -> tuple[Fact, ...]:
    facts = (
        Fact(label=name, value="missing" if version is None else format_quantity(version))
        for name, version in environment.extras.items()
    )
    return tuple(facts) or (Fact(label="none", value="known"),)
