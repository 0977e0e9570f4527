"""One watched call: what enters, what comes out, what is written to, and which switches are on inside."""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from typing import Any

import pytest

import referee
from referee.device.compilers import compile_counters
from referee.device.fake import FakeAsync
from referee.device.observe import Observation, observe
from referee.device.registry import open_device
from referee.errors import OptionError
from referee.records.provenance import REGISTRY

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def watch(step: Any, name: str = "cpu") -> Observation:
    return observe(step, open_device(name))


def by_role(seen: Observation) -> Counter[str]:
    roles: Counter[str] = Counter()
    for spec in seen.shapes:
        roles[spec.role] += spec.count
    return roles


def codes(seen: Observation) -> set[str]:
    return {finding.code for finding in seen.findings}


def test_inputs_parameters_and_buffers_are_told_apart() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16))
    x = torch.randn(32, 8)
    seen = watch(lambda: model(x))
    assert by_role(seen) == {"input": 1, "parameter": 4, "buffer": 3}
    entered = seen.shapes[0]
    assert (entered.role, entered.shape, entered.stride, entered.dtype, entered.device) == (
        "input",
        (32, 8),
        (8, 1),
        "float32",
        "cpu",
    )
    assert [(spec.role, spec.shape) for spec in seen.outputs] == [("output", (32, 16))]
    assert (seen.dtype, seen.basis, seen.backward, seen.requires_grad) == ("float32", "operators", False, True)


def test_equal_tensors_are_counted_and_strides_kept() -> None:
    tensors = [torch.randn(4, 6) for _ in range(3)] + [torch.randn(6, 4).t()]
    seen = watch(lambda: sum(tensors))
    assert {(spec.stride, spec.count) for spec in seen.shapes} == {((6, 1), 3), ((1, 4), 1)}


def test_operators_are_counted_below_autograd() -> None:
    x = torch.randn(4, 4)
    seen = watch(lambda: (x @ x + 1).relu())
    assert seen.ops == {"aten::mm": 1, "aten::add": 1, "aten::relu": 1}
    assert seen.n_ops == 3


def test_what_is_made_inside_did_not_enter() -> None:
    seen = watch(lambda: torch.tensor([1.0, 2.0]) * torch.ones(2))
    assert seen.shapes == ()
    assert seen.zero_inputs is None


def test_a_training_step_with_its_optimizer() -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(8, 4)

    def step() -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    first, second = watch(step), watch(step)
    assert by_role(first) == {"input": 1, "parameter": 2}
    # Per parameter two moments and a step count; the gradients are made anew in each step.
    assert by_role(second) == {"input": 1, "parameter": 2, "state": 6}
    assert second.backward is True
    assert {spec.role for spec in second.mutated} == {"parameter", "state"}
    assert "inputs-mutated" not in codes(second)


def test_written_inputs_are_a_finding_even_through_a_view() -> None:
    cache, x = torch.ones(4, 8), torch.randn(8)

    def step() -> Any:
        cache[1, :] = x * 2
        return {"out": (cache.sum(),)}

    seen = watch(step)
    assert [spec.shape for spec in seen.mutated] == [(4, 8)]
    assert codes(seen) == {"inputs-mutated"}
    assert seen.output == "dict"


@pytest.mark.parametrize("parameter", [True, False])
def test_a_gradient_that_adds_up_at_a_tensor_held_by_itself_is_no_input(parameter: bool) -> None:
    x, w = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
    weight = torch.nn.Parameter(w.detach()) if parameter else w

    def step() -> Any:
        loss = (x @ weight).square().mean()
        loss.backward()
        return loss.detach()

    step()
    seen = watch(step)
    assert "inputs-mutated" not in codes(seen)
    assert [spec.role for spec in seen.mutated] == ["gradient"]


def test_all_zero_inputs_forbid_a_number() -> None:
    zeros, ones = torch.zeros(3, 3), torch.ones(3, 3)
    seen = watch(lambda: zeros @ zeros)
    assert [(f.code, f.severity) for f in seen.findings] == [("zero-inputs", "fatal")]
    assert seen.method == {"input_fill": "all zeros"}
    assert watch(lambda: zeros @ ones).zero_inputs is False


def test_sparse_inputs_are_not_compared_with_zero() -> None:
    weight, zeros, ones = torch.eye(3).to_sparse(), torch.zeros(3, 2), torch.ones(3, 2)
    assert watch(lambda: torch.sparse.mm(weight, ones)).zero_inputs is False
    assert watch(lambda: torch.sparse.mm(weight, zeros)).zero_inputs is None


def test_a_step_without_a_tensor_is_said_to_have_none() -> None:
    x = torch.randn(3)
    assert codes(watch(lambda: float(x.sum()))) == {"no-output"}
    assert watch(lambda: None).output is None


def test_random_operators_are_named() -> None:
    x = torch.randn(8)
    seen = watch(lambda: torch.nn.functional.dropout(x) + torch.rand(8))
    assert set(seen.random_ops) == {"aten::bernoulli_", "aten::rand"} or set(seen.random_ops) == {
        "aten::native_dropout",
        "aten::rand",
    }


@pytest.mark.parametrize(
    ("context", "mode"),
    [(torch.enable_grad, "grad"), (torch.no_grad, "no_grad"), (torch.inference_mode, "inference_mode")],
)
def test_the_grad_mode_is_that_inside_the_step(context: Any, mode: str) -> None:
    x = torch.randn(3)

    def step() -> Any:
        with context():
            return x * 2

    assert watch(step).switches["grad_mode"] == mode


def test_where_autocast_sits_and_how_often_it_casts() -> None:
    model, x = torch.nn.Linear(4, 4, bias=False), torch.randn(2, 4)

    def inside() -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)

    seen = watch(inside)
    assert (seen.autocast, seen.autocast_site, seen.dtype) == ("cpu bfloat16", "inside the step", "bfloat16")
    assert seen.casts == {"autocast": 2, "explicit": 0, "backward": 0}  # the input and the weight
    with torch.autocast("cpu", dtype=torch.bfloat16):
        first, second = watch(lambda: model(x)), watch(lambda: model(x))
    assert first.autocast_site == "around the step"
    # Around the loop the weight's cast is kept from call to call, and only the input is cast again.
    assert (first.casts["autocast"], second.casts["autocast"]) == (2, 1)
    assert watch(lambda: model(x)).autocast_site == "nowhere"


def test_casts_of_the_users_own_are_no_autocast() -> None:
    x = torch.randn(4)
    assert watch(lambda: x.half().to(torch.float32)).casts == {"autocast": 0, "explicit": 2, "backward": 0}


def test_a_compiled_step_is_not_compiled_again_for_watching() -> None:
    x = torch.randn(4, 4)
    step = torch.compile(lambda: torch.relu(x) @ x, backend="eager")
    before = compile_counters()
    seen = watch(step)
    watched = compile_counters()
    step()
    assert compile_counters() == watched
    assert watched["compile.frames"] == before["compile.frames"] + 1
    assert (seen.basis, seen.n_ops, seen.backward) == ("closure", 0, None)
    assert by_role(seen) == {"input": 1}
    assert "torch.compile" in str(seen.switches["compile"])


def test_a_compiled_model_inside_a_step_is_found() -> None:
    model = torch.compile(torch.nn.Linear(4, 4), backend="eager")
    x = torch.randn(2, 4)

    def step() -> Any:
        return model(x)

    seen = watch(step)
    assert seen.compiled == "torch.compile(Linear)"
    assert by_role(seen) == {"input": 1, "parameter": 2}


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        (torch.no_grad(), "no_grad"),
        (torch.inference_mode(), "inference_mode"),
        (torch.enable_grad(), "grad"),
    ],
)
def test_a_compiled_step_that_sets_its_grad_mode_says_it_by_its_outputs(mode: Any, told: str) -> None:
    torch._dynamo.reset()
    model, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    compiled = torch.compile(model, backend="eager")

    def step() -> Any:
        with mode:
            return compiled(x)

    assert watch(step).switches["grad_mode"] == told
    assert watch(step).switches["autocast"] == "not read"  # it may enter it inside


@pytest.mark.parametrize("drops", [True, False])
def test_a_compiled_step_that_trains_recorded_gradients_though_its_output_has_none(drops: bool) -> None:
    torch._dynamo.reset()
    model = torch.compile(torch.nn.Linear(4, 4), backend="eager")
    optimizer, x = torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(2, 4)

    def step() -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        if drops:
            optimizer.zero_grad()
        return loss.detach()

    assert watch(step).switches["grad_mode"] == "grad"


@pytest.mark.parametrize("frames", [0, 1])
def test_a_compiled_module_whose_compiled_forward_is_not_called_is_a_finding(
    frames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = torch.compile(torch.nn.Linear(4, 4), backend="eager"), torch.randn(2, 4)
    device = open_device("cpu")
    monkeypatch.setattr(type(device), "counters", lambda _: {"compile.frames": frames})
    found = observe(lambda: model._orig_mod(x), device)
    assert ("not-compiled" in {finding.code for finding in found.findings}) is (frames == 0)


def test_where_nothing_wants_a_gradient_the_mode_of_a_compiled_step_is_not_told() -> None:
    x = torch.randn(4)
    assert watch(torch.compile(lambda: x * 2, backend="eager")).switches["grad_mode"] == "not read"


def test_lazy_tensors_can_be_watched() -> None:
    device = open_device("lazy")
    x = torch.randn(4, 4).to("lazy")
    device.settle(x)
    seen = observe(lambda: (x @ x).relu(), device)
    assert by_role(seen) == {"input": 1}
    assert seen.ops["aten::mm"] == 1
    assert seen.devices == ("lazy:0",)
    assert seen.zero_inputs is False


def test_a_fake_device_is_called_once_and_loads_nothing() -> None:
    device = FakeAsync()
    seen = observe(lambda: device.run(host_ns=5, device_ns=20), device)
    assert (device.ops_recorded, device.now_ns()) == (1, 25)
    assert (seen.dtype, seen.shapes, seen.findings) == ("none", (), ())


def test_the_output_is_not_kept_alive() -> None:
    import weakref

    kept: list[Any] = []

    def step() -> Any:
        output = torch.ones(3) * 2
        kept.append(weakref.ref(output))
        return output

    seen = watch(step)
    assert seen.output == "Tensor"
    assert kept[0]() is None


def test_what_has_not_begun_is_handed_back() -> None:
    async def step() -> None:
        """Never awaited."""

    output = watch(step).output
    assert inspect.iscoroutine(output)
    output.close()


def test_what_the_step_raises_passes_and_the_modes_are_left() -> None:
    def step() -> Any:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        watch(step)
    assert not torch.utils._python_dispatch.is_in_torch_dispatch_mode()


def test_never_under_a_profiler() -> None:
    with torch.profiler.profile(), pytest.raises(OptionError, match="while a profiler is recording"):
        watch(lambda: torch.ones(1))


def test_switches_are_provenance_keys() -> None:
    seen = watch(lambda: torch.ones(1))
    assert all(f"switches.{key}" in REGISTRY for key in seen.switches)
    assert all(f"method.{key}" in REGISTRY for key in seen.method)


def test_arithmetic_is_counted_by_formula_backward_included() -> None:
    """x @ w: 2·m·k·n forward; for the gradient of w as much again. A pointwise operator counts nothing."""
    x, w = torch.randn(8, 16), torch.randn(16, 4, requires_grad=True)
    assert watch(lambda: torch.relu(x @ w.detach())).flop == 2 * 8 * 16 * 4

    def train() -> Any:
        loss = (x @ w).sum()
        loss.backward()
        return loss

    assert watch(train).flop == 2 * (2 * 8 * 16 * 4)
    assert watch(lambda: x + 1).flop == 0


def test_the_processors_ceiling_lies_above_what_it_does() -> None:
    from referee.device.flops import cpu_ceiling_flop_per_s

    ceiling = cpu_ceiling_flop_per_s(("float32",))
    assert ceiling is not None
    assert ceiling > 1e9
    assert cpu_ceiling_flop_per_s(("bool",)) is None
    assert watch(lambda: torch.randn(4, 4)).peak_flop_per_s(open_device("cpu")) == ceiling


def test_the_ceiling_is_of_one_thread_on_each_processor_and_leaves_the_threads_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several threads that wait for each other on a busy machine read far too low a peak, and refuse honest numbers."""
    from referee.device import flops

    seen: list[int] = []
    product = torch.mm

    def mm(a: Any, b: Any) -> Any:
        seen.append(torch.get_num_threads())
        return product(a, b)

    before = torch.get_num_threads()
    flops._best_of_one_thread.cache_clear()
    monkeypatch.setattr(torch, "mm", mm)
    torch.set_num_threads(2)
    try:
        alone = flops._best_of_one_thread("float32")
        monkeypatch.setattr(flops, "affinity", lambda: tuple(range(16)))
        ceiling = flops.cpu_ceiling_flop_per_s(("float32",))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
        flops._best_of_one_thread.cache_clear()
    assert set(seen) == {1}
    assert alone is not None
    assert ceiling == 2 * 16 * alone


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_zeros_that_a_sparse_layout_spares_count_no_arithmetic() -> None:
    """torch's formulas see shapes alone: a product with one element in a thousand would be above any peak."""
    dense = torch.randn(16, 8)
    for sparse in (torch.eye(16).to_sparse_csr(), torch.eye(16).to_sparse()):
        assert watch(functools.partial(torch.matmul, sparse, dense)).flop == 0


def test_the_peak_is_that_of_the_dtype_the_arithmetic_is_done_in() -> None:
    """Most elements that a look-up reads may be of a dtype in which this chip hardly computes."""
    table, x, w = torch.randn(4096, 64).half(), torch.randn(8, 64), torch.randn(64, 64)
    seen = watch(lambda: (torch.nn.functional.embedding(torch.tensor([1]), table).float() + x) @ w)
    assert seen.dtype == "float16"
    assert seen.arithmetic == ("float32",)
    plain = watch(lambda: x @ w)
    assert seen.peak_flop_per_s(open_device("cpu")) == plain.peak_flop_per_s(open_device("cpu"))


def test_nested_inputs_are_described_with_the_sizes_that_they_have() -> None:
    parts = [torch.randn(3, 8), torch.randn(5, 8)]
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor(parts, layout=layout)
        seen = watch(lambda nested=nested: torch.nn.functional.relu(nested))
        assert [spec.shape for spec in (*seen.shapes, *seen.outputs)] == [(2, -1, 8)] * 2
        assert seen.zero_inputs is None


def test_the_threads_that_a_step_sets_for_itself_are_seen_and_stated() -> None:
    x, session = torch.randn(8, 8), torch.get_num_threads()

    def step() -> object:
        torch.set_num_threads(session + 1)
        try:
            return x @ x
        finally:
            torch.set_num_threads(session)

    assert watch(step).threads == session + 1
    assert watch(lambda: x @ x).threads == session
    found = referee.bench(step, budget="20ms")
    assert found.provenance.value("chip.threads") == session + 1
    assert torch.get_num_threads() == session
