"""A whole step: inference tensors, graphs held over steps, saved bytes, modes. Nothing here depends on time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from referee.anatomy.modes import count_intermediates, look
from referee.anatomy.step import dissect_step
from referee.records.anatomy import Anatomy

BUDGET_NS = 60_000_000


def dissect(step: Callable[[], object], cpu: Any, **options: Any) -> Anatomy:
    return dissect_step(step, device=cpu, budget_ns=BUDGET_NS, **options)


def codes(anatomy: Anatomy) -> list[str]:
    return [finding.code for finding in anatomy.findings]


def test_a_model_built_in_inference_mode_is_named_before_it_trains(cpu: Any) -> None:
    with torch.inference_mode():
        model = torch.nn.Linear(4, 4)
    x = torch.rand(2, 4)
    found = dissect(lambda: model(x).sum(), cpu, model=model)
    named = {f.evidence["name"] for f in found.findings if f.code == "inference-tensor"}
    assert named == {"model.weight", "model.bias"}


def test_a_buffer_made_in_warm_up_is_named(cpu: Any) -> None:
    class Cached(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache: torch.Tensor | None = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.cache is None:
                self.cache = torch.zeros(4)
            self.cache.add_(1)
            return x + self.cache

    def make() -> Callable[[], object]:
        model, x = Cached(), torch.rand(4)
        return lambda: model(x)

    found = dissect(make(), cpu, rebuild=make)
    (finding,) = [f for f in found.findings if f.code == "inference-tensor"]
    assert finding.evidence["name"] == "model.cache"
    assert finding.evidence["fails"]  # the update under no_grad raises


@pytest.mark.parametrize(
    ("part", "named"),
    [
        (lambda h: h.sigmoid().add_(1), "SigmoidBackward0"),
        (lambda h: h.exp().mul_(2), "ExpBackward0"),
        (lambda h: h.sigmoid().add(1), None),
        (lambda h: h.add(1).relu_(), None),
    ],
    ids=["sigmoid", "exp", "out of place", "what nobody saved"],
)
def test_a_saved_tensor_that_is_written_to_is_named_before_a_backward_raises(
    part: Callable[[Any], Any], named: str | None, cpu: Any
) -> None:
    model, x = torch.nn.Linear(4, 4), torch.rand(2, 4)
    found = dissect(lambda: part(model(x)).sum(), cpu, model=model)
    assert [f.evidence["node"] for f in found.findings if f.code == "saved-overwritten"] == ([named] if named else [])


@pytest.mark.parametrize("detach", [False, True])
def test_what_a_hook_keeps_is_named(detach: bool, cpu: Any) -> None:
    model, x, kept = torch.nn.Sequential(torch.nn.Linear(4, 4)), torch.rand(2, 4), list[Any]()
    model[0].register_forward_hook(lambda module, args, out: kept.append(out.detach() if detach else out))
    found = dissect(lambda: model(x).sum(), cpu, model=model)
    named = [f.evidence["name"] for f in found.findings if f.code == "graph-held"]
    assert named == ([] if detach else ["model.0.kept"])


@pytest.mark.parametrize(
    ("cut", "missing"),
    [("no_grad", 2), ("detach", 2), ("nothing", 0), ("frozen", 0)],
)
def test_parameters_that_a_backward_does_not_reach_are_named(cut: str, missing: int, cpu: Any) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.below, self.above = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
            if cut == "frozen":
                self.below.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.set_grad_enabled(cut != "no_grad"):
                hidden = self.below(x)
            return self.above(hidden.detach() if cut == "detach" else hidden)

    model, x = Net(), torch.rand(2, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    found = [f for f in dissect(step, cpu, model=model).findings if f.code == "no-gradient"]
    assert [f.evidence["parameters"] for f in found] == ([missing] if missing else [])


def test_a_running_sum_of_losses_is_named_and_a_detached_one_is_not(cpu: Any) -> None:
    weight = torch.rand(4, requires_grad=True)

    class Sum:
        def __init__(self, detach: bool) -> None:
            self.total = torch.zeros(())
            self.detach = detach

        def __call__(self) -> torch.Tensor:
            loss = (weight * 2).exp().sum()
            self.total = self.total + (loss.detach() if self.detach else loss)
            return loss

    found = dissect(Sum(False), cpu)
    (finding,) = [f for f in found.findings if f.code == "graph-held"]
    assert finding.evidence["name"] == "total"
    assert finding.evidence["nodes_per_call"] == 4  # the loss's three nodes and the addition
    assert "graph-held" not in codes(dissect(Sum(True), cpu))


def mlp() -> tuple[torch.nn.Module, torch.Tensor]:
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64), torch.nn.GELU())
    return model.eval(), torch.rand(32, 64)


def test_eval_does_not_stop_autograd(cpu: Any) -> None:
    model, x = mlp()
    found = dissect(lambda: model(x), cpu, model=model)
    assert "backward-never-runs" in codes(found)
    by_mode = {mode.mode: mode for mode in found.modes}
    assert by_mode["grad"].saved_bytes == found.tape.saved_bytes > 0
    assert by_mode["no_grad"].saved_bytes == by_mode["inference_mode"].saved_bytes == 0
    assert by_mode["no_grad"].nodes == 0
    quiet = dissect(lambda: without_grad(model, x), cpu, model=model)
    assert "backward-never-runs" not in codes(quiet)


def without_grad(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        out: torch.Tensor = model(x)
        return out


def test_saved_bytes_count_each_storage_once_and_no_weights(cpu: Any) -> None:
    model, x = mlp()
    parameters = list(model.parameters())
    tape = look(lambda: model(x), parameters=parameters).tape
    # x, the ReLU's output (also the second Linear's input), and the input of the GELU.
    assert tape.saved_bytes == 4 * (32 * 64 + 32 * 128 + 32 * 64)
    assert tape.parameter_bytes == 4 * 128 * 64
    assert tape.naive_bytes == tape.saved_bytes + tape.parameter_bytes + 4 * 32 * 128


def test_a_step_that_runs_backward_is_seen_before_it_does(cpu: Any) -> None:
    model, x = mlp()

    def step() -> None:
        model(x).sum().backward()

    glance = look(step)
    assert glance.ran_backward
    assert glance.tape.accumulators == 4
    found = dissect(step, cpu, model=model)
    assert found.modes[1].why_not  # backward under no_grad
    assert "backward-never-runs" not in codes(found)


def test_a_compiled_step_has_one_node_and_compiles_anew_in_each_mode(cpu: Any) -> None:
    torch._dynamo.reset()
    weight = torch.rand(8, requires_grad=True)
    compiled = torch.compile(lambda x: (x * weight).exp().sin().sum(), backend="aot_eager")
    x = torch.rand(8)
    found = dissect(lambda: compiled(x), cpu)
    assert found.tape.compiled_nodes == 1
    assert [node.name for node in found.tape.nodes if not node.variable] == ["CompiledFunctionBackward"]
    by_mode = {mode.mode: mode.compiles for mode in found.modes}
    assert by_mode["grad"] == 0
    assert by_mode["no_grad"] == 1
    assert by_mode["inference_mode"] == 1
    assert "recompiled" in codes(found)


def test_intermediates_are_tensors_with_memory_of_their_own() -> None:
    a = torch.rand(4, 4)

    def step() -> torch.Tensor:
        b = a.exp()  # one
        c = b.t()[2:].unsqueeze(0).squeeze(0)  # views: none
        b.add_(1)  # an update: none
        return torch.cat((c, c)) * 2  # two

    assert count_intermediates(step) == 3


def test_a_list_of_losses_is_named_once(cpu: Any) -> None:
    def make() -> Callable[[], object]:
        weight = torch.rand(4, requires_grad=True)
        losses: list[torch.Tensor] = []

        def step() -> torch.Tensor:
            losses.append((weight * 2).sum())
            return losses[-1]

        return step

    found = dissect(make(), cpu, rebuild=make)
    (held,) = [f for f in found.findings if f.code == "graph-held"]
    assert held.evidence["name"] == "losses"
    assert held.evidence["nodes_per_call"] == 3
    named = [f.evidence["name"] for f in found.findings if f.code == "inference-tensor"]
    assert named == ["losses"]


def test_a_step_that_runs_backward_is_said_to_need_a_graph(cpu: Any) -> None:
    weight = torch.rand(4, requires_grad=True)

    def step() -> torch.Tensor:
        loss = (weight * 2).sum()
        loss.backward()
        return loss

    found = dissect(step, cpu)
    assert [mode.why_not for mode in found.modes[1:]] == [
        "the step runs backward itself, and no graph is recorded here"
    ] * 2


def training(loss: Callable[[torch.nn.Module], torch.Tensor], *, drops: bool = False) -> Callable[[], object]:
    """A step of a model with two layers, ``below`` and ``above``; it may drop its gradients at its end."""
    model = torch.nn.ModuleDict({"below": torch.nn.Linear(4, 4), "above": torch.nn.Linear(4, 1)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        found = loss(model)
        found.backward()
        optimizer.step()
        if drops:
            optimizer.zero_grad()
        return found.detach()

    return step


@pytest.mark.parametrize(
    ("below", "missing"),
    [
        (lambda layer, x: checkpoint(layer, x, use_reentrant=True), 2),
        (lambda layer, x: checkpoint(layer, x, use_reentrant=False), 0),
        (lambda layer, x: layer(x).detach(), 2),
        (lambda layer, x: layer(x), 0),
    ],
    ids=["reentrant checkpoint", "checkpoint", "detached", "right"],
)
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_gradients_that_a_step_drops_at_its_end_were_there(below: Callable[..., Any], missing: int, cpu: Any) -> None:
    x = torch.rand(2, 4)
    step = training(lambda model: model["above"](below(model["below"], x)).square().mean(), drops=True)
    found = [f for f in dissect(step, cpu).findings if f.code == "no-gradient"]
    assert [f.evidence["parameters"] for f in found] == ([missing] if missing else [])


@pytest.mark.parametrize("where", ["a list", "a ModuleList", "not handed over", "frozen"])
def test_gradients_that_no_optimizer_uses_are_named(where: str, cpu: Any) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = [torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)]
            self.layers: Any = layers if where == "a list" else torch.nn.ModuleList(layers)
            self.head = torch.nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> Any:
            return self.head(self.layers[1](self.layers[0](x)))

    model, x = Net(), torch.rand(2, 4)
    if where == "frozen":
        model.layers.requires_grad_(False)
    trained = model.head.parameters() if where == "not handed over" else model.parameters()
    optimizer = torch.optim.SGD([p for p in trained if p.requires_grad], lr=0.01)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    found = [f for f in dissect(step, cpu, model=model).findings if f.code == "gradient-unused"]
    expected = ["model.layers[0].weight"] if where == "a list" else ["model.layers.0.weight"]
    assert [f.evidence["first"] for f in found] == (expected if where in ("a list", "not handed over") else [])
    assert all(f.evidence["parameters"] == 4 for f in found)


def test_a_loss_made_anew_reaches_no_parameter_at_all(cpu: Any) -> None:
    x = torch.rand(2, 4)
    step = training(lambda model: torch.tensor(model["above"](model["below"](x)).mean().item(), requires_grad=True))
    (finding,) = [f for f in dissect(step, cpu).findings if f.code == "no-gradient"]
    assert finding.evidence["parameters"] == finding.evidence["of"] == 4


@pytest.mark.parametrize("create_graph", [True, False])
@pytest.mark.filterwarnings("ignore:Using backward")
def test_gradients_that_carry_a_graph_are_named(create_graph: bool, cpu: Any) -> None:
    model, x = torch.nn.Linear(4, 1), torch.rand(2, 4)

    def step() -> None:
        model.zero_grad()
        model(x).tanh().square().mean().backward(create_graph=create_graph)

    named = [f.evidence["name"] for f in dissect(step, cpu, model=model).findings if f.code == "graph-held"]
    assert named == (["model.weight.grad"] if create_graph else [])
    model.zero_grad()


class Slots:
    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total: Any = 0.0


@pytest.mark.parametrize("where", ["deque", "dictionaries", "slot", "wrapped"])
def test_graphs_are_found_in_deques_slots_and_behind_decorators(where: str, cpu: Any) -> None:
    weight, kept, meter = torch.rand(4, requires_grad=True), deque[Any](), Slots()

    def step() -> torch.Tensor:
        loss = (weight * 2).sum()
        if where == "slot":
            meter.total = meter.total + loss
        else:
            kept.append({"loss": loss} if where == "dictionaries" else loss)
        return loss

    found = dissect(torch.enable_grad()(step) if where == "wrapped" else step, cpu)
    named = [f.evidence["name"] for f in found.findings if f.code == "graph-held"]
    assert named == (["meter.total"] if where == "slot" else ["kept"])


def test_a_tape_that_no_output_carries_is_seen_all_the_same(cpu: Any) -> None:
    model, x = mlp()
    found = dissect(lambda: model(x).argmax(1), cpu, model=model)
    tape = found.tape
    assert tape is not None
    assert tape.saved_bytes == 4 * (32 * 64 + 32 * 128 + 32 * 64)  # as where the logits are returned
    assert tape.parameter_bytes == 4 * 128 * 64
    (finding,) = [f for f in found.findings if f.code == "backward-never-runs"]
    assert finding.evidence["saved_bytes"] == tape.saved_bytes
    assert [mode.saved_bytes for mode in found.modes] == [tape.saved_bytes, 0, 0]
    quiet = dissect(lambda: without_grad(model, x).argmax(1), cpu, model=model)
    assert quiet.tape is not None
    assert quiet.tape.saved_bytes == 0
    assert "backward-never-runs" not in codes(quiet)


def test_a_step_that_asks_for_its_gradients_runs_no_tape_for_nothing(cpu: Any) -> None:
    weight = torch.rand(4, requires_grad=True)
    found = dissect(lambda: torch.autograd.grad((weight * 2).exp().sum(), weight)[0], cpu)
    assert not {"backward-never-runs", "no-gradient"} & set(codes(found))


def test_a_step_that_leaves_gradients_switched_off_is_said_to(cpu: Any) -> None:
    from referee.callables import observe_since
    from referee.device.state import read_state

    model, x = torch.nn.Linear(4, 1), torch.rand(2, 4)

    def step() -> torch.Tensor:
        loss = model(x).mean()
        torch.set_grad_enabled(False)
        return loss

    with torch.enable_grad():
        seen = observe_since(read_state(), step, cpu)
        assert "switch-set" in codes(dissect_step(step, device=cpu, seen=seen, budget_ns=BUDGET_NS))
