"""The tape: nodes, edges and bytes by construction; shared storage once; versions; the grad modes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

from referee.anatomy.tape import count_nodes, read_tape, read_tape_of_call
from referee.records.document import Document
from referee.report.tape import tape_blocks
from referee.report.tape_svg import render_tape_svg
from referee.report.text import render_text


def test_nodes_edges_and_order_of_a_small_graph() -> None:
    a, b = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
    tape = read_tape(((a * b).exp() + a).sum())
    assert [node.name for node in tape.nodes if not node.variable] == [
        "SumBackward0",
        "AddBackward0",
        "ExpBackward0",
        "MulBackward0",
    ]
    assert tape.accumulators == 2
    assert tape.edges == 1 + 2 + 1 + 2
    placed = {node.number: place for place, node in enumerate(tape.nodes)}
    assert all(placed[node.number] < placed[child] for node in tape.nodes for child in node.next)


def test_matmul_saves_both_inputs_and_relu_its_output() -> None:
    a, b = torch.rand(4, 5, requires_grad=True), torch.rand(5, 6, requires_grad=True)
    x = a * 1
    out = torch.relu(x @ (b * 1))
    saved = {node.name: node.saved for node in read_tape(out).nodes}
    assert sorted(s.shape for s in saved["MmBackward0"]) == [(4, 5), (5, 6)]
    assert [(s.name, s.shape) for s in saved["ReluBackward0"]] == [("result", (4, 6))]


def test_storage_is_counted_once_and_views_hold_all_of_it() -> None:
    a = torch.rand(1000, requires_grad=True)
    whole = a.exp()  # saves its result
    part = (whole[:10] * whole[:10]).sum()  # saves two views of it
    tape = read_tape(part)
    assert tape.saved_bytes == 4000
    assert tape.naive_bytes == 4000 + 2 * 40


def test_parameters_are_not_activations() -> None:
    layer = torch.nn.Linear(64, 32)
    x = torch.rand(8, 64)
    tape = read_tape(layer(x).relu(), inputs=(x,))
    assert tape.parameter_bytes in (0, 64 * 32 * 4)  # the weight is saved only where the input wants a gradient
    wanting = x.clone().requires_grad_()
    tape = read_tape(layer(wanting.neg()).relu(), parameters=layer.parameters())
    assert tape.parameter_bytes == 64 * 32 * 4
    assert tape.saved_bytes == 8 * 64 * 4 + 8 * 32 * 4


@given(st.lists(st.sampled_from(["exp", "tanh", "sigmoid", "neg"]), min_size=1, max_size=12), st.integers(1, 50))
@settings(max_examples=25, deadline=None)
def test_a_chain_saves_what_each_of_its_links_must(names: list[str], size: int) -> None:
    x = torch.rand(size, requires_grad=True)
    out = x
    for name in names:
        out = getattr(torch, name)(out)
    tape = read_tape(out)
    # exp, tanh and sigmoid save their own result, neg nothing.
    assert tape.saved_bytes == 4 * size * sum(name != "neg" for name in names)
    assert len(tape.nodes) == len(names) + 1 == count_nodes(out)


def test_a_saved_tensor_that_was_changed_is_named() -> None:
    x = torch.rand(4, requires_grad=True)
    y = x.exp()
    out = (y * y).sum()
    y.detach().add_(1)
    named = [s.name for node in read_tape(out).nodes for s in node.saved]
    assert any("changed in place" in name for name in named)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        out.backward()


def test_what_backward_freed_is_named() -> None:
    x = torch.rand(4, requires_grad=True)
    out = x.exp().sum()
    out.backward()
    assert any("freed" in s.name for node in read_tape(out).nodes for s in node.saved)


def test_nothing_is_recorded_and_why() -> None:
    x = torch.rand(4, requires_grad=True)
    with torch.no_grad():
        assert "no_grad" in read_tape(x.exp()).why_empty
    with torch.inference_mode():
        assert "inference" in read_tape(x.exp()).why_empty
    assert "wants a gradient" in read_tape(torch.rand(4).exp()).why_empty
    assert "no output tensor" in read_tape(None).why_empty


def test_what_two_nodes_keep_is_counted_at_the_first_and_said_at_the_other() -> None:
    x = torch.rand(4, 4, requires_grad=True)
    y = x.exp()  # keeps its result, as the product does
    tape = read_tape(y * y.detach(), inputs=(x,))
    rows = render_text(Document(title="", blocks=tape_blocks(tape)), width=100, color=False)
    assert "counted above" in rows
    assert "saves what another holds" in render_tape_svg(tape)


def lists() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    return [torch.rand(4, requires_grad=True) for _ in range(3)], [torch.rand(4) for _ in range(3)]


def test_a_node_that_shows_nothing_is_said_to_keep_what_is_not_known() -> None:
    ours, others = lists()
    tape = read_tape(torch._foreach_mul(ours, others))
    assert (tape.unread_nodes, tape.saved_tensors, tape.saved_bytes) == (1, 0, 0)
    assert [saved.name for saved in tape.nodes[0].saved] == ["saved: torch shows nothing of what it saves"]


def test_what_such_a_node_saves_is_seen_by_hooks_in_a_call_made_for_it() -> None:
    ours, others = lists()
    tape = read_tape_of_call(lambda: torch._foreach_mul(ours, others), inputs=(*ours, *others))
    assert tape.unread_nodes == 0
    assert (tape.saved_tensors, tape.saved_bytes) == (6, 6 * 16)  # both lists, whichever wants a gradient
    mixed = read_tape_of_call(lambda: torch._foreach_exp([tensor.sigmoid() for tensor in ours]), inputs=ours)
    assert (mixed.saved_tensors, mixed.saved_bytes) == (6, 6 * 16)  # three outputs of each kind
    assert {len(node.saved) for node in mixed.nodes if node.name == "ForeachExpBackward0"} == {3}


def test_a_long_tape_is_counted_to_its_end() -> None:
    x = torch.rand(2, requires_grad=True)
    y = x
    for _ in range(2_500):
        y = y + 1
    tape = read_tape(y)
    assert (tape.size, len(tape.nodes), tape.edges) == (2_501, 2_000, 2_500)
    shown = render_text(Document(title="", blocks=tape_blocks(tape)), width=100, color=False)
    assert "2,501" in shown


needs_raw = pytest.mark.skipif(
    not hasattr(torch.rand(1, requires_grad=True).exp().grad_fn._raw_saved_result, "unpack_hook"),
    reason="this torch does not show the hooks of a saved tensor",
)


@needs_raw
def test_what_is_computed_again_in_backward_is_not_counted_and_not_computed_for_the_tape() -> None:
    calls = []

    def layer(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return torch.tanh(x * x)

    x = torch.rand(8, requires_grad=True)
    tape = read_tape(checkpoint(layer, x, use_reentrant=False), inputs=(x,))
    assert len(calls) == 1
    named = [saved.name for node in tape.nodes for saved in node.saved]
    assert named.count("kept by a hook") == 1  # the input, from which it is computed again
    assert (tape.saved_tensors, tape.saved_bytes) == (1, 32)
    assert all("a hook keeps something else" in name for name in named if name != "kept by a hook")


@needs_raw
def test_what_stands_between_two_checkpoints_is_kept() -> None:
    inner = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8))
    hidden = torch.rand(2, 8)
    for _ in range(3):
        hidden = checkpoint(inner, hidden, use_reentrant=False)
    tape = read_tape(hidden.sum())
    assert (tape.saved_tensors, tape.saved_bytes) == (3, 3 * 64)  # what enters each, and nothing of 64 columns


@needs_raw
def test_what_a_hook_puts_aside_is_counted_once() -> None:
    x = torch.rand(8, requires_grad=True)
    aside: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> int:
        aside[len(aside)] = tensor.half()
        return len(aside) - 1

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda number: aside[number].float()):
        tape = read_tape(x.exp().sin())
    assert (tape.saved_tensors, tape.saved_bytes) == (2, 32)


def test_what_a_function_keeps_on_ctx_counts_as_saved() -> None:
    x = torch.rand(8, requires_grad=True)
    tape = read_tape(Kept.apply(x), inputs=(x,))
    assert (tape.saved_tensors, tape.saved_bytes) == (2, 64)
    named = [saved.name for node in tape.nodes for saved in node.saved]
    assert named == ["ctx.x", "ctx.parts, its own output"]


@needs_raw
def test_what_hooks_keep_is_counted_where_it_lies() -> None:
    x = torch.rand(8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (t.dtype, t.half()), lambda kept: kept[1].to(kept[0])):
        halves = read_tape(torch.exp(x))
        function = read_tape(Doubled.apply(x))
    assert (halves.saved_tensors, halves.saved_bytes) == (1, 16)
    assert (function.saved_tensors, function.saved_bytes) == (1, 16)


class Doubled(torch.autograd.Function):  # type: ignore[misc]
    """Saves its input."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Twice the input."""
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Twice the gradient."""
        return grads[0] * 2


class Kept(torch.autograd.Function):  # type: ignore[misc]
    """Puts its input and its output on ``ctx`` as attributes."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """The exponential."""
        out = x.exp()
        ctx.x, ctx.parts = x, [out]
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradient times the output."""
        return grads[0] * ctx.parts[0]
