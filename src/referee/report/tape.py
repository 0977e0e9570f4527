"""What did a forward pass leave for backward? Its nodes and what they saved, as blocks of a document."""

from __future__ import annotations

from referee.records.anatomy import SavedTensor, Tape, TapeNode
from referee.records.document import Block, Column, Fact, Facts, Heading, Paragraph, Table
from referee.report.wording import plural, sentence
from referee.units import format_bytes

_MOST_NODES = 40


def tape_blocks(tape: Tape) -> tuple[Block, ...]:
    """Nodes, edges and saved bytes, and the first nodes in the order of a backward pass."""
    if not tape.nodes:
        words = (
            f"{tape.why_empty}: {format_bytes(tape.saved_bytes)} in {plural(tape.saved_tensors, 'tensor')}, storage "
            f"counted once, without parameters ({format_bytes(tape.parameter_bytes)}); it is dropped again, or the "
            "step keeps it"
            if tape.saved_tensors
            else f"Nothing was recorded: {tape.why_empty}"
        )
        return (Heading(text="Tape"), Paragraph(text=sentence(words)))
    unread = f". Of {plural(tape.unread_nodes, 'node')} torch does not show what is saved" if tape.unread_nodes else ""
    facts = (
        Fact(
            label="Nodes",
            value=f"{tape.size:,}",
            note=f"{plural(tape.edges, 'edge')}, {tape.accumulators} of the nodes accumulate into leaves",
        ),
        Fact(
            label="Saved",
            value=format_bytes(tape.saved_bytes),
            note=f"{plural(tape.saved_tensors, 'tensor')}, storage counted once, without parameters "
            f"({format_bytes(tape.parameter_bytes)}); a plain sum says {format_bytes(tape.naive_bytes)}{unread}",
        ),
    )
    rows = tuple(map(_node_row, tape.nodes[:_MOST_NODES]))
    more = tape.size - len(rows)
    return (
        Heading(text="Tape"),
        Facts(facts=facts),
        Table(
            columns=(
                Column(title="#", align="right"),
                Column(title="Node"),
                Column(title="Goes on to"),
                Column(title="Saved", fit="wrap"),
            ),
            rows=rows,
            caption="In the order in which backward would run them" + (f"; {more} more nodes." if more > 0 else "."),
        ),
    )


def _held(saved: SavedTensor) -> str:
    """The bytes that this node alone keeps, or that a node above keeps them already."""
    return format_bytes(saved.bytes) if saved.bytes or not saved.view_bytes else "counted above"


def _node_row(node: TapeNode) -> tuple[str, ...]:
    saved = "; ".join(
        f"{s.name} {'×'.join(map(str, s.shape)) or 'scalar'} {s.dtype}, {_held(s)}"
        + (f" ({s.role})" if s.role != "activation" else "")
        if s.dtype
        else s.name
        for s in node.saved
    )
    return (str(node.number), node.variable or node.name, ", ".join(map(str, node.next)), saved)
