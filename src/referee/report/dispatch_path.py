"""Which kernels does a call meet? The keys of one call by priority, and the path in every mode."""

from __future__ import annotations

from referee.records.anatomy import ModePath, PathEntry
from referee.records.document import Block, Column, Heading, Table


def path_blocks(path: tuple[PathEntry, ...]) -> tuple[Block, ...]:
    """The keys of one call by priority, with what is registered at each."""
    if not path:
        return ()
    rows = tuple(
        (
            "→" if entry.visited else "",
            entry.key,
            entry.kernel,
            entry.note,
            entry.source,
        )
        for entry in path
    )
    return (
        Heading(text="Dispatch path"),
        Table(
            columns=(
                Column(title=""),
                Column(title="Key"),
                Column(title="Registered"),
                Column(title="What happens", fit="wrap", priority=2),
                Column(title="Where", fit="shorten", priority=3),
            ),
            rows=rows,
            caption="Keys of the arguments and the thread by priority; an arrow marks those that the call visits.",
        ),
    )


def mode_blocks(paths: tuple[ModePath, ...]) -> tuple[Block, ...]:
    """The kernels met in each mode, beside what a witness saw."""
    if not paths:
        return ()
    gradients = {True: "equal", False: "differ", None: "–"}
    rows = tuple((path.mode, _met(path), _witness_words(path), gradients[path.gradients_equal]) for path in paths)
    return (
        Heading(text="Dispatch path by mode"),
        Table(
            columns=(
                Column(title="Mode"),
                Column(title="Kernels met", fit="wrap"),
                Column(title="Witness", fit="wrap", priority=2),
                Column(title="Gradients", priority=3),
            ),
            rows=rows,
            caption="Predicted from key sets and rules; a witness is a recording kernel in front of each real one.",
        ),
    )


def _met(path: ModePath) -> str:
    if not path.predicted:
        return path.why_not or "none of its own"
    return " → ".join(path.predicted) + (" → …" if path.open_ended else "")


def _witness_words(path: ModePath) -> str:
    if path.witnessed is None:
        return path.why_not if path.predicted and path.why_not else "–"
    return "seen" if path.agrees else "differs: " + " → ".join(path.witnessed)
