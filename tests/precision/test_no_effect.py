"""Autocast that changes nothing, weights of more or fewer bits than float32, and casts that outlive an update."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from referee.cli.main import main  # noqa: E402
from referee.device.registry import open_device  # noqa: E402
from referee.precision.advise import advise  # noqa: E402
from referee.precision.findings import static_findings, watch_step  # noqa: E402
from referee.precision.verdict import judge  # noqa: E402
from referee.precision.watch import watch  # noqa: E402

from .models import subject_of  # noqa: E402


def classifier(dtype: Any = None) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).to(dtype)
    return model, torch.randn(8, 16, dtype=dtype), torch.randint(4, (8,))


def told(step: Any, model: Any, optimizer: Any = None) -> dict[str, Any]:
    report = advise(step, device=open_device("cpu"), model=model, optimizer=optimizer, budget_ns=200_000_000)
    return {finding.code: finding for finding in report.findings} | {"verdict": report.verdict}


def test_a_forward_in_another_thread_is_not_in_the_region_that_this_one_entered() -> None:
    model, x, y = classifier()
    with ThreadPoolExecutor(1) as pool:

        def step(aside: bool) -> Any:
            hidden = pool.submit(model, x).result() if aside else model(x)
            loss = torch.nn.functional.cross_entropy(hidden, y)
            loss.backward()
            return loss.detach()

        assert "autocast-without-effect" in told(lambda: step(True), model)
        assert "autocast-without-effect" not in told(lambda: step(False), model)


@pytest.mark.parametrize(
    ("device", "enabled", "elsewhere"), [("cuda", True, True), ("cuda", False, False), ("cpu", True, False)]
)
@pytest.mark.filterwarnings("ignore:CUDA is not available")
@pytest.mark.filterwarnings("ignore:User provided device_type of 'cuda'")
def test_a_region_for_a_device_on_which_nothing_is_computed(device: str, enabled: bool, elsewhere: bool) -> None:
    model, x, y = classifier()

    def step() -> Any:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=enabled):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss.detach()

    found = [f for f in watch_step(subject_of((step, model, None))) if f.code == "autocast-without-effect"]
    assert [f.evidence["region"] for f in found] == (["cuda"] if elsewhere else [])
    assert all(str(f.evidence["line"]).startswith("test_no_effect.py:") for f in found)


def test_weights_in_float64_are_said_to_be_what_was_timed() -> None:
    model, x, y = classifier(torch.float64)

    def step() -> Any:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss.detach()

    found = told(step, model)
    assert found["wide-weights"].evidence["parameters"] == 4
    assert found["verdict"].dtype == "cannot-tell"
    assert "float64" in found["verdict"].lines[0]
    assert "scales" not in found["verdict"].lines[0]  # of float64's gradients fp16's range says nothing
    assert "autocast-without-effect" not in found  # said once


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (torch.rand(8, 1, dtype=torch.float64), True),
        (torch.rand(8, 1), False),
        (torch.tensor(0.5, dtype=torch.float64), False),
    ],
    ids=["float64", "float32", "a number"],
)
def test_data_in_float64_beside_narrower_weights_is_told(target: Any, told: bool) -> None:
    model, x = torch.nn.Linear(16, 1), torch.rand(8, 16)
    made = (lambda: torch.nn.functional.mse_loss(model(x), target.expand(8, 1)), model, None)
    assert ("wide-inputs" in {finding.code for finding in static_findings(subject_of(made))}) is told


@pytest.mark.parametrize(("lr", "lost"), [(1e-6, True), (1.0, False)])
def test_updates_that_weights_in_bf16_do_not_feel_are_told(lr: float, lost: bool) -> None:
    model, x, y = classifier(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    def step() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    finding = told(step, model, optimizer)["low-weights"]
    assert ("too small to change them" in finding.message) is lost
    assert ("float32 copy" in finding.hint) is lost


def test_half_weights_that_nobody_trains_meet_no_scaler() -> None:
    model, x, _ = classifier(torch.float16)
    subject = subject_of((lambda: model(x), model, None))
    assert "half-weights" in {f.code for f in static_findings(subject)}
    assert "half-weights" not in {f.code for f in static_findings(subject, trained=False)}


@pytest.mark.parametrize(("iterations", "cached", "stale"), [(1, True, False), (3, True, True), (3, False, False)])
def test_weights_updated_inside_a_region_are_cast_no_second_time(iterations: int, cached: bool, stale: bool) -> None:
    model, x, y = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    losses = []
    with watch() as seen, torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=cached):
        for _ in range(iterations):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert ("casts-outlive-update" in {finding.code for finding in seen.findings}) is stale
    assert (len(set(losses)) == 1) is (stale or iterations == 1)  # what it is told for: nothing is learned


def test_one_region_a_step_is_left_in_peace() -> None:
    model, x, y = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with watch() as seen:
        for _ in range(3):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
    assert "casts-outlive-update" not in {finding.code for finding in seen.findings}


@pytest.mark.parametrize("part", ["norm", "running sum"])
def test_an_infinity_that_is_divided_by_is_found_although_every_gradient_is_finite(part: str) -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Linear(64, 64), 400 * torch.randn(8, 64)

    def step() -> Any:
        hidden = model(x)
        if part == "norm":
            scaled = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6)
        else:
            scaled = hidden / hidden.abs().repeat(1, 64).cumsum(-1)[:, -1:]
        loss = scaled.float().sin().square().mean()
        loss.backward()
        return loss.detach()

    found = told(step, model)
    assert found["operator-overflows"].evidence["op"] == ("pow" if part == "norm" else "cumsum")


def test_fp16_is_not_advised_where_what_vanishes_comes_back_at_no_scale() -> None:
    from .test_forecast import ranges
    from .test_verdict import row

    lost = ranges(run={0: 0.9, 16: 0.9}, low=None, high=None)
    rows = [row("float32"), row("float16", "faster", 0.5)]
    verdict = judge(timing=rows, gradients=lost, activations=(), autocast=None)
    assert verdict.dtype == "float32"
    assert "no loss scale that was tried is good" in verdict.lines[0]


REFUSED = """
import torch
model = torch.nn.Linear(4, 4)
x = torch.rand(2, 4)

class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, w):
        ctx.save_for_backward(a, w)
        return a @ w.t()
    @staticmethod
    def backward(ctx, g):
        a, w = ctx.saved_tensors
        return g @ w, g.t() @ a

def step():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = Product.apply(x, model.weight)
    out.sum().backward()
    return out.detach()
"""


def test_a_function_that_meets_two_dtypes_in_its_backward_is_named(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "t.py"
    path.write_text(REFUSED)
    assert main(["precision", f"{path}:step", "--no-progress"]) == 2
    said = capsys.readouterr().err
    assert "Product meets tensors of two dtypes" in said
    assert "custom_bwd" in said
