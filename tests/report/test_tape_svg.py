"""The drawing of a tape: a picture that parses, with every node and edge, and a refusal where it would be no help."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from referee.records.anatomy import SavedTensor, Tape, TapeNode
from referee.report.tape_svg import MOST_NODES, render_tape_svg

SAVED = SavedTensor(name="self", shape=(4,), dtype="float32", view_bytes=16, bytes=16, role="activation")


def tape(*nodes: TapeNode) -> Tape:
    edges = sum(len(node.next) for node in nodes)
    return Tape(
        nodes=nodes,
        edges=edges,
        accumulators=1,
        saved_tensors=1,
        saved_bytes=16,
        parameter_bytes=0,
        naive_bytes=16,
        why_empty="" if nodes else "no gradient is wanted here (no_grad)",
    )


def node(number: int, *following: int, **options: object) -> TapeNode:
    return TapeNode(number=number, name=f"N{number}<b>", next=following, **options)  # type: ignore[arg-type]


def test_every_node_and_edge_is_drawn_and_nodes_do_not_overlap() -> None:
    picture = render_tape_svg(
        tape(node(0, 1, 2), node(1, 3, saved=(SAVED,)), node(2, 3), node(3, variable="leaf 4")), title="a & b"
    )
    root = ElementTree.fromstring(picture)
    space = {"s": "http://www.w3.org/2000/svg"}
    boxes = [(int(r.get("x", "")), int(r.get("y", ""))) for r in root.findall("s:rect", space)]
    assert len(set(boxes)) == 4
    assert len([p for p in root.findall("s:path", space) if p.get("class") == "edge"]) == 4
    assert "saves 16 B" in picture
    assert boxes[0][1] < boxes[1][1] == boxes[2][1] < boxes[3][1]  # rows follow the order of backward


def test_what_cannot_be_drawn_says_why() -> None:
    with pytest.raises(ValueError, match="no_grad"):
        render_tape_svg(tape())
    with pytest.raises(ValueError, match="too large"):
        render_tape_svg(tape(*(node(number) for number in range(MOST_NODES + 1))))
