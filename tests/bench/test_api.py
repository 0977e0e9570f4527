"""The Python interface. Times are not asserted here: what is measured, on what, and what is refused."""

from __future__ import annotations

import functools
import inspect
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import referee
from referee.errors import EnvironmentLacks, OptionError, UserError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SHORT = "30ms"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_one_liner_states_what_was_measured() -> None:
    found = referee.bench(torch.add, torch.randn(8, 4), torch.randn(8, 4), budget=SHORT)
    assert found.name == "add"
    assert found.provenance.dtype == "float32"
    assert [(s.shape, s.count) for s in found.provenance.shapes] == [((8, 4), 2)]
    assert found.provenance.value("method.clock") == "settled_amortised"
    assert found.median_ns is not None
    assert found.median_ns > 0


def test_it_can_be_called_again_after_its_package_was_imported() -> None:
    """The package ``referee.bench`` and the function share a name."""
    import referee.bench.plan

    assert referee.bench.plan.Plan
    assert referee.bench(torch.neg, torch.randn(4), budget=SHORT).name == "neg"


def test_importing_referee_loads_nothing_heavy() -> None:
    code = "import sys, referee; assert not {'torch', 'numpy', 'msgspec'} & set(sys.modules); dir(referee)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_keyword_arguments_partials_and_methods() -> None:
    x = torch.randn(4, 4)
    assert referee.bench(torch.sum, x, kwargs={"dim": 1}, budget=SHORT).name == "sum"
    assert referee.bench(functools.partial(torch.mul, x), x, budget=SHORT).name == "mul"
    assert referee.bench(torch.nn.Linear(4, 4), x, budget=SHORT).name == "Linear"
    assert referee.bench(lambda: x + 1, budget=SHORT).name == "step"


def test_threads_hold_for_one_measurement_and_are_restored() -> None:
    found = referee.bench(torch.mm, torch.randn(64, 64), torch.randn(64, 64), threads=2, budget=SHORT)
    assert found.provenance.value("chip.threads") == 2
    assert torch.get_num_threads() == 1


def test_zero_inputs_have_no_headline() -> None:
    found = referee.bench(torch.add, torch.zeros(4), torch.zeros(4), budget=SHORT)
    assert found.median_ns is None
    assert [f.code for f in found.findings if f.severity == "fatal"] == ["zero-inputs"]


def test_a_cached_result_is_caught() -> None:
    class Cached(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.seen: dict[int, torch.Tensor] = {}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if id(x) not in self.seen:
                self.seen[id(x)] = x @ x
            return self.seen[id(x)]

    found = referee.bench(Cached(), torch.randn(256, 256), budget="100ms")
    assert found.median_ns is None
    assert "cached-result" in [f.code for f in found.findings]


@pytest.mark.parametrize("spread", range(3))
def test_a_result_made_before_the_step_is_told_whatever_the_caches_hold(spread: int) -> None:
    y = torch.randn(64, 64) @ torch.randn(64, 64)
    found = referee.bench(lambda: y, budget=SHORT)
    told = [f for f in found.findings if f.code == "cached-result"]
    assert [f.severity for f in told] == ["warning"]
    assert "is there already" in told[0].message


@pytest.mark.parametrize("budget", ["1e400s", "2000h", 1e300, 10**9])
def test_no_measurement_is_given_more_than_a_day(budget: str | float) -> None:
    with pytest.raises(OptionError, match="budget"):
        referee.bench(torch.add, torch.ones(4), torch.ones(4), budget=budget)


def test_memory_is_counted_in_a_pass_of_its_own() -> None:
    x = torch.randn(1024)
    found = referee.bench(lambda: (x + 1) * 2, budget=SHORT, memory=True)
    # Two results of 4 KiB, and at most a few scalars that Python numbers are wrapped in.
    assert found.peak_bytes is not None
    assert 2 * 4096 <= found.peak_bytes <= 2 * 4096 + 256
    assert found.allocations is not None
    assert found.allocations >= 2


def test_memory_that_cannot_be_counted_costs_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from referee.device import memory

    def fail(*_: object) -> None:
        raise EnvironmentLacks("The allocator of xla:0 cannot be watched.")

    monkeypatch.setattr(memory, "measure_memory", fail)
    found = referee.bench(lambda: torch.ones(4) + 1, budget=SHORT, memory=True)
    assert found.peak_bytes is None
    (missing,) = (f for f in found.findings if f.code == "part-missing")
    assert missing.message == "Memory could not be counted: The allocator of xla:0 cannot be watched."


@pytest.mark.parametrize("cache", ["flushed", "rotated"])
def test_the_cache_state_is_stated(cache: str) -> None:
    x = torch.randn(1 << 20)
    found = referee.bench(torch.neg, x, cache=cache, budget=SHORT)  # type: ignore[arg-type]
    assert str(found.provenance.value("method.cache_state")).startswith(cache)


def test_comparison_refuses_sides_in_different_grad_modes() -> None:
    layer, x = torch.nn.Linear(16, 16), torch.randn(4, 16)

    def without() -> torch.Tensor:
        with torch.no_grad():
            return layer(x)

    found = referee.compare(("grad", lambda: layer(x)), ("no_grad", without), budget=SHORT)
    assert found.answer == "cannot-tell"
    assert [d.path for d in found.pairs[0].differences] == ["switches.grad_mode"]
    assert (
        referee.compare(("grad", lambda: layer(x)), ("no_grad", without), budget=SHORT, ignoring=["switches.grad_mode"])
        .pairs[0]
        .quads
    )


def test_comparison_sees_a_side_that_changes_the_global_precision() -> None:
    """A speed-up that is only a precision change."""
    x = torch.randn(16, 16)
    before = torch.get_float32_matmul_precision()

    def at(precision: str) -> Callable[[], torch.Tensor]:
        def step() -> torch.Tensor:
            torch.set_float32_matmul_precision(precision)
            return x @ x

        return step

    try:
        found = referee.compare(("highest", at("highest")), ("high", at("high")), budget=SHORT)
    finally:
        torch.set_float32_matmul_precision(before)
    assert found.answer == "cannot-tell"
    assert "switches.float32_matmul_precision" in [d.path for d in found.pairs[0].differences]


def test_two_lambdas_get_names_of_their_own() -> None:
    x = torch.randn(4)
    found = referee.compare(lambda: x + 1, lambda: x + 2, budget=SHORT)
    assert [side.name for side in found.sides] == ["step #1", "step #2"]


def test_a_grid_hands_every_parameter_over_by_name() -> None:
    def make(rows: int, dtype: torch.dtype) -> Callable[[], torch.Tensor]:
        x = torch.randn(rows, 16, dtype=dtype)
        return lambda: x + 1

    others = {"dtype": [torch.float32, torch.float64]}
    found = referee.sweep_grid(make, parameter="rows", values=[1, 2], others=others, budget=SHORT)
    assert [each.fixed["dtype"] for each in found.sweeps] == ["float32", "float64"]
    assert [each.sweep.provenance.dtype for each in found.sweeps] == ["float32", "float64"]
    assert "2 sweeps over dtype" in repr(found)


def test_sweep_shapes_and_verify(tmp_path: Path) -> None:
    def make(rows: int) -> Callable[[], torch.Tensor]:
        x = torch.randn(rows, 16)
        return lambda: x + 1

    swept = referee.sweep(make, parameter="rows", values=[1, 2], budget=SHORT, price_per_hour=2.0, served=2)
    assert [p.value for p in swept.points] == [1, 2]
    assert swept.points[1].items_per_dollar
    mixed = referee.shapes(make, [1, 2, 4], shares={"4": 0.5}, budget=SHORT)
    assert [p.label for p in mixed.points] == ["1", "2", "4"]
    saved = referee.bench(torch.add, torch.randn(4), torch.randn(4), budget=SHORT)
    referee.save(saved, tmp_path / "m.json")
    found = referee.verify(tmp_path / "m.json", torch.add, torch.randn(4), torch.randn(4))
    assert found.saved == saved
    other = referee.verify(saved, torch.add, torch.randn(5), torch.randn(5))
    assert other.answer == "not-comparable"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: referee.bench(torch.neg, torch.ones(1), budget="soon"), "not a duration"),
        (lambda: referee.bench(torch.neg, torch.ones(1), threads=0), "thread"),
        (lambda: referee.bench(torch.neg, torch.ones(1), cache="tepid"), "no cache state"),  # type: ignore[arg-type]
        (lambda: referee.bench(torch.neg, torch.ones(1), device="warp"), "not a device"),
        (lambda: referee.compare(torch.neg, args=(torch.ones(1),)), "two candidates"),
        (lambda: referee.shapes(lambda _: lambda: None, []), "at least one"),
        (lambda: referee.shapes(lambda _: lambda: None, [1], shares={"2": 1.0}), "no shape"),
    ],
)
def test_mistakes_are_one_sentence(call: Callable[[], object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        call()


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        referee.nothing_of_the_kind  # noqa: B018
    assert "bench" in dir(referee)


def test_what_the_callable_raises_passes_through() -> None:
    def step() -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        referee.bench(step)
    with pytest.raises(OptionError):
        referee.bench(torch.neg, torch.ones(1), budget=0)


def test_arithmetic_that_is_not_done_is_noticed() -> None:
    """The product is computed in the calls that are watched, and never again: no processor does 2 GFLOP in no time."""
    a = torch.randn(1024, 1024)
    calls, kept = itertools.count(), []

    def step() -> Any:
        if next(calls) < 2:
            kept[:] = [torch.mm(a, a)]
        return kept[0]

    found = referee.bench(step, device="cpu", budget="100ms", prove=False)
    assert found.median_ns is None
    assert "above-peak" in [f.code for f in found.findings]
    honest = referee.bench(torch.mm, a, a, budget="100ms", prove=False)
    assert "above-peak" not in [f.code for f in honest.findings]
    assert honest.flop == 2 * 1024**3


def test_the_callable_package_shows_the_functions_signature_and_parameters() -> None:
    from referee import api

    assert inspect.signature(referee.bench) == inspect.signature(api.bench)
    assert "budget" in str(inspect.signature(referee.bench))
    assert api.bench.__doc__ is not None
    assert "``budget``" in (referee.bench.__doc__ or "")


def test_words_for_the_callable_are_pointed_to_kwargs() -> None:
    a = torch.randn(4)
    with pytest.raises(OptionError, match=r"no option 'alpha'.*kwargs=\{'alpha'"):
        referee.bench(torch.add, a, a, alpha=2)


def test_a_sweep_over_nothing_is_told_in_python() -> None:
    with pytest.raises(OptionError, match=r"values=\[1, 2, 4, 8\]"):
        referee.sweep(lambda n: lambda: torch.ones(n), parameter="n", values=[])


def test_a_sweep_puts_back_what_a_value_sets_and_says_that_it_differs() -> None:
    def make(n: int) -> Callable[[], object]:
        if n == 2:
            torch.set_grad_enabled(False)
            torch.set_default_dtype(torch.float64)
        x = torch.randn(n, 4, dtype=torch.float32)
        return lambda: x + 1

    found = referee.sweep(make, parameter="n", values=[1, 2, 4], budget=SHORT)
    at = [point.measurement.provenance.value("switches.default_dtype") for point in found.points]
    assert at == ["float32", "float64", "float32"]
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() == torch.float32
    (differ,) = [f for f in found.findings if f.code == "switches-differ"]
    assert set(differ.evidence) == {"switches.default_dtype", "switches.grad_mode"}
    assert differ.severity == "warning"


def test_a_parameter_that_is_a_switch_is_no_finding() -> None:
    def make(precision: str) -> Callable[[], object]:
        torch.set_float32_matmul_precision(precision)
        x = torch.randn(4, 4)
        return lambda: x @ x

    found = referee.sweep(make, parameter="float32_matmul_precision", values=["highest", "medium"], budget=SHORT)
    assert [f.code for f in found.findings if f.severity != "info"] == []
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_switch_set_by_a_value_that_fails_is_put_back() -> None:
    def make(n: int) -> Callable[[], object]:
        if n == 1:
            torch.set_default_dtype(torch.float64)
            raise MemoryError("too large")
        x = torch.randn(n, 4)
        return lambda: x + 1

    found = referee.sweep(make, parameter="n", values=[1, 2, 4], budget=SHORT)
    assert [point.value for point in found.points] == [2, 4]
    assert [p.measurement.provenance.dtype for p in found.points] == ["float32", "float32"]
    assert [f.evidence["error"] for f in found.findings if f.code == "point-failed"] == ["MemoryError"]


def test_values_may_be_any_iterable_of_numbers() -> None:
    import numpy as np

    def make(n: int) -> Callable[[], object]:
        x = torch.randn(int(n), 4)
        return lambda: x + 1

    for values in (iter([1, 2]), np.array([1, 2]), range(1, 3)):
        found = referee.sweep(make, parameter="n", values=values, budget=SHORT)
        assert [(p.value, p.label) for p in found.points] == [(1.0, ""), (2.0, "")]


def test_each_value_is_built_once_and_its_first_call_is_the_first() -> None:
    built: list[int] = []
    slow_s = 0.03

    def make(n: int) -> Callable[[], object]:
        built.append(n)
        x, calls = torch.randn(n, 4), itertools.count()

        def step() -> Any:
            if next(calls) == 0:
                time.sleep(slow_s)
            return x + 1

        return step

    found = referee.sweep(make, parameter="n", values=[1, 2], budget=SHORT)
    assert built == [1, 2]
    assert all(p.measurement.warmup.first_call_ns >= slow_s * 1e9 for p in found.points)
    assert referee.bench(make(3), budget=SHORT).warmup.first_call_ns >= slow_s * 1e9
    sides = referee.compare(("a", make(3)), ("b", make(3)), budget=SHORT).sides
    assert all(side.warmup.first_call_ns >= slow_s * 1e9 for side in sides)


async def _coroutine() -> None: ...


def _generator() -> Iterator[int]:
    yield 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("f", [_coroutine, _generator])
def test_work_that_has_not_begun_is_refused(f: Callable[[], object]) -> None:
    with pytest.raises(OptionError, match="work has not begun"):
        referee.bench(f, budget=SHORT)
    with pytest.raises(OptionError, match="work has not begun"):
        referee.compare(("a", lambda: torch.ones(2) + 1), ("b", f), budget=SHORT)


def test_a_result_in_the_place_of_a_function_is_told() -> None:
    x = torch.randn(4)
    with pytest.raises(OptionError, match="is a Tensor, which cannot be called"):
        referee.bench(x, budget=SHORT)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="returned a Tensor, which cannot be called"):
        referee.sweep(lambda n: x, parameter="n", values=[1, 2], budget=SHORT)
    with pytest.raises(OptionError, match="number of threads"):
        referee.bench(torch.add, x, x, threads=1.5, budget=SHORT)  # type: ignore[arg-type]


def test_rotating_what_takes_too_many_copies_is_refused_at_once() -> None:
    with pytest.raises(OptionError, match="copies, more than"):
        referee.bench(torch.add, torch.randn(8), torch.randn(8), cache="rotated", budget=SHORT)


def test_a_step_on_meta_tensors_has_no_number() -> None:
    x = torch.randn(8, 8, device="meta")
    found = referee.bench(torch.mm, x, x, budget=SHORT)
    assert found.median_ns is None
    assert "work-did-not-run" in {f.code for f in found.findings}
    compared = referee.compare(("data", lambda: torch.ones(8) + 1), ("shapes", lambda: x + 1), budget=SHORT)
    assert compared.answer == "cannot-tell"
    assert "meta device" in compared.why


def test_a_step_on_fake_tensors_has_no_number() -> None:
    """They name a device and have shapes alone."""
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        x = torch.ones(8, 8)
    found = referee.bench(torch.mm, x, x, budget=SHORT)
    assert found.median_ns is None
    assert "work-did-not-run" in {f.code for f in found.findings}


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
def test_formats_that_cannot_be_looked_into_are_timed_all_the_same() -> None:
    from torch.masked import masked_tensor

    x = torch.randn(8, 8)
    eight = x.to(torch.float8_e4m3fn)
    for step, inputs in ((torch.Tensor.float, eight), (torch.neg, masked_tensor(x, x > 0))):
        assert referee.bench(step, inputs, budget=SHORT).blocks > 0
    zeros = torch.zeros(8, 8).to(torch.float8_e4m3fn)
    assert "zero-inputs" in {f.code for f in referee.bench(torch.Tensor.float, zeros, budget=SHORT).findings}


def test_a_device_may_be_torchs_own_object() -> None:
    assert referee.bench(torch.neg, torch.ones(4) * 2, device=torch.device("cpu"), budget=SHORT).blocks > 0  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="'0' is not a device name"):
        referee.bench(torch.neg, torch.ones(4), device=0)  # type: ignore[arg-type]


def test_kwargs_must_be_a_mapping_of_names() -> None:
    x = torch.randn(4)
    for wrong in ([("alpha", 2)], {1: 2}):
        with pytest.raises(OptionError, match="not a mapping of names"):
            referee.bench(torch.add, x, x, kwargs=wrong)  # type: ignore[arg-type]


def test_arguments_whose_copying_raises_anything_are_not_copied() -> None:
    class Single:
        def __deepcopy__(self, memo: object) -> object:
            raise AttributeError("there is one alone")

    x = torch.randn(4)
    assert referee.bench(lambda _, x: x + 1, Single(), x, budget=SHORT).blocks > 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x: referee.compare([torch.neg, torch.abs], args=(x,)), "one after the other"),
        (lambda x: referee.compare({"a": torch.neg, "b": torch.abs}, args=(x,)), "one after the other"),
        (lambda x: referee.compare(("a", torch.neg, 1), ("b", torch.abs), args=(x,)), "a pair of a name"),
        (lambda x: referee.compare((torch.neg, "a"), (torch.abs, "b"), args=(x,)), "a pair of a name"),
        (lambda x: referee.compare(torch.neg, torch.abs, args=x), r"args=\(x,\)"),
        (lambda x: referee.sweep(lambda n: lambda: x * n, parameter="n", values=[1, float("inf")]), "have an end"),
        (lambda x: referee.sweep(lambda n: lambda: x * n, parameter="n", values=[1, float("nan")]), "have an end"),
        (lambda x: referee.sweep(lambda n: lambda: x * n, parameter="n", values=[1, 1.0]), "distinct"),
        (lambda x: referee.sweep(lambda n: lambda: x, parameter="n", values=[1], items_per_call=7), "lambda batch"),
        (lambda x: referee.sweep(lambda n: lambda: x, parameter="n", values=[1], price_per_hour="3"), "a number"),
        (lambda x: referee.sweep(lambda n: lambda: x, parameter="n", values=[1, 2], served="2"), "n=2 is to be served"),
        (lambda x: referee.sweep_grid(lambda n: lambda: x, parameter="n", values=[1], others=["m"]), "a mapping"),
        (lambda x: referee.shapes(lambda n: lambda: x, 8), "a list of shapes"),
        (lambda x: referee.shapes(lambda n: lambda: x, [8, 8]), "listed twice"),
        (lambda x: referee.verify(torch.neg, torch.neg, x), "can be verified"),
        (lambda x: referee.verify("none.json", x), "What is to be measured again is a Tensor"),
        (lambda x: referee.verify("none.json", torch.neg, x, tolerance_frac=-0.1), "between 0 and 100"),
    ],
)
def test_what_is_handed_over_wrongly_is_told_in_one_sentence(call: Callable[[Any], object], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        call(torch.randn(4))


def test_one_provenance_key_may_be_named_without_a_list() -> None:
    x = torch.randn(4)
    found = referee.compare(torch.neg, lambda x: torch.neg(x.double()), args=(x,), ignoring="dtype", budget=SHORT)
    assert "not-comparable" not in {f.code for f in found.findings}


def test_a_point_of_a_sweep_is_verified_by_its_value(tmp_path: Path) -> None:
    def make(rows: int) -> Callable[[], Any]:
        x = torch.randn(rows, 8)
        return lambda: x @ x.T

    saved = referee.sweep(make, parameter="rows", values=[2, 64], budget=SHORT)
    referee.save(saved, tmp_path / "sweep.json")
    for record in (saved, tmp_path / "sweep.json"):
        found = referee.verify(record, make(64), at=64)
        assert found.saved == saved.points[1].measurement
        assert found.answer != "not-comparable"
        with pytest.raises(OptionError, match="Name one: at=2 or at=64"):
            referee.verify(record, make(64))
    with pytest.raises(OptionError, match="at names a point of a sweep, and What was saved"):
        referee.verify(saved.points[0].measurement, make(2), at=2)


def test_what_a_step_makes_of_a_parameter_itself_is_work() -> None:
    """Inputs made inside the step are not seen to enter it, and a sum has one shape at every size."""
    for step in (lambda n: lambda: torch.ones(n) * 2, lambda n: lambda: torch.ones(n).sum()):
        found = referee.sweep(step, parameter="n", values=[1, 2], budget=SHORT)
        assert "parameter-unused" not in {f.code for f in found.findings}


def test_a_function_that_comes_back_uncalled_is_told_to_be_one() -> None:
    x = torch.randn(4)
    for made in (lambda: lambda: x + 1, lambda: functools.partial(torch.neg, x)):
        (found,) = (f for f in referee.bench(made, budget=SHORT).findings if f.code == "no-output")
        assert found.severity == "warning"
        assert "was not called" in found.message


def test_sides_on_different_devices_are_not_compared_unasked() -> None:
    pytest.importorskip("torch._lazy.ts_backend")
    from referee.device.registry import open_device

    open_device("lazy")
    here, lazy = torch.randn(16, 16), torch.randn(16, 16).to("lazy")
    sides = (("here", lambda: here @ here), ("lazy", lambda: lazy @ lazy))
    for order in (sides, sides[::-1]):
        found = referee.compare(*order, budget=SHORT)
        assert found.answer == "cannot-tell"
        assert {"accelerator.name", "method.settle"} == {d.path for d in found.pairs[0].differences}
        assert {side.name: side.provenance.accelerator is not None for side in found.sides} == {
            "here": False,
            "lazy": True,
        }


def test_the_device_that_was_asked_for_and_takes_no_part_is_told() -> None:
    from referee.device.registry import open_device

    open_device("lazy")
    x = torch.randn(8, 8)
    found = referee.bench(torch.mm, x, x, device="lazy", budget=SHORT, prove=False)
    (finding,) = [f for f in found.findings if f.code == "computes-elsewhere"]
    assert finding.severity == "warning"
    assert found.provenance.accelerator is None


def test_sides_that_return_other_things_are_told() -> None:
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    found = referee.compare(("whole", lambda: x @ w), ("row", lambda: x[:1] @ w), budget=SHORT)
    (finding,) = [f for f in found.findings if f.code == "outputs-differ"]
    assert finding.evidence["a_returns"] == "(8, 8) float32"
    assert finding.evidence["b_returns"] == "(1, 8) float32"
    same = referee.compare(("one", lambda: x @ w), ("other", lambda: torch.mm(x, w)), budget=SHORT)
    assert "outputs-differ" not in {f.code for f in same.findings}


def test_the_order_in_which_inputs_are_read_is_no_difference() -> None:
    x, w = torch.randn(4, 8), torch.randn(8, 8)
    found = referee.compare(("one", lambda: (x + 0) @ (w + 0)), ("other", lambda: ((w + 0).t() @ (x + 0).t()).t()),
                            budget=SHORT)  # fmt: skip
    assert not found.pairs[0].differences
    assert "layouts-differ" not in {f.code for f in found.findings}


def test_inputs_in_another_memory_order_are_told() -> None:
    x = torch.randn(2, 4, 8, 8)
    last = x.to(memory_format=torch.channels_last)
    found = referee.compare(("first", lambda: x + 1), ("last", lambda: last + 1), budget=SHORT)
    (finding,) = [f for f in found.findings if f.code == "layouts-differ"]
    assert finding.severity == "warning"
    assert "(256, 1, 32, 4)" in str(finding.evidence["b_strides"])
