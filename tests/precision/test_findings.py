"""What is to be mended before a precision is chosen, each told with its cause; what differs on another device."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from referee.device.registry import open_device  # noqa: E402
from referee.precision.advise import advise  # noqa: E402
from referee.precision.audit import audit  # noqa: E402
from referee.precision.control import BF16  # noqa: E402
from referee.precision.elsewhere import differences, elsewhere_findings, record_elsewhere  # noqa: E402
from referee.precision.findings import cast_cache, finite_findings, several_optimizers, static_findings, watch_step  # noqa: E402
from referee.precision.gradients import measure_gradients  # noqa: E402
from referee.precision.policy import policies  # noqa: E402
from referee.precision.subject import make_subject  # noqa: E402
from referee.records.precision import DeviceDifference  # noqa: E402

from .models import subject_of  # noqa: E402


# G07
def test_an_epsilon_that_is_zero_in_half() -> None:
    model = nn.Linear(2, 2).half()
    bad = torch.optim.Adam(model.parameters())
    good = torch.optim.Adam(model.parameters(), eps=1e-4)
    step = lambda: None  # noqa: E731
    found = {f.code: f for f in static_findings(subject_of((step, model, bad)))}
    assert found["epsilon-vanishes"].evidence["eps"] == 1e-8
    assert found["half-weights"].evidence["first"] == "weight"
    assert "low-weights" in found
    assert "epsilon-vanishes" not in {f.code for f in static_findings(subject_of((step, model, good)))}
    plain = nn.Linear(2, 2)
    assert static_findings(subject_of((step, plain, torch.optim.Adam(plain.parameters())))) == ()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_gradients_that_an_update_has_spoiled_are_told_with_its_cause(dtype: torch.dtype) -> None:
    """Weights in half under Adam's default epsilon are no numbers after one update; nothing is said of float32."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).to(dtype)
    x = torch.zeros(4, 2, dtype=dtype)
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step()
    subject = subject_of((step, model, optimizer))
    found = finite_findings(measure_gradients(subject).reference, subject)
    if dtype == torch.float32:
        assert found == ()
        return
    assert found[0].code == "gradients-not-finite"
    assert found[0].evidence["because"] == "epsilon-vanishes"
    assert int(str(found[0].evidence["weights_not_finite"])) > 0
    assert "the weights being float16" in found[0].message
    assert "float32 already" not in found[0].message
    assert "eps=1e-4" in found[0].hint


# G10
def test_the_cast_cache_is_tried_on_this_torch() -> None:
    layer, inputs = nn.Linear(2, 1), torch.ones(1, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            layer(inputs)
        layer(inputs).sum().backward()
    safe = all(p.grad is not None for p in layer.parameters())
    assert (list(cast_cache()) == []) is safe


# G12
def test_a_sum_has_another_dtype_on_cuda() -> None:
    model, inputs = nn.Linear(4, 4), torch.randn(2, 4)
    subject = subject_of((lambda: model(inputs).sum(), model, None))
    recorded = audit(subject, BF16, policies=policies("cpu"))
    rows, reason = differences(recorded.recording, record_elsewhere(subject, "cuda", "bfloat16"))
    assert reason == ""
    assert [(r.call, r.here, r.there) for r in rows] == [("sum", "bfloat16", "float32")]
    assert [f.code for f in elsewhere_findings(rows)] == ["differs-elsewhere"]


def test_indexing_runs_on_the_other_device_and_leaves_tensors_as_they_were() -> None:
    """A class of tensors that once had an item method of Python's stays a sequence, which torch.tensor would ask."""
    model, inputs = nn.Linear(4, 4), torch.randn(2, 4)

    def step() -> torch.Tensor:
        kept, out = torch.zeros(2, 4), model(inputs)
        kept[0] = out[1].detach()
        return out[:, 0].sum() + kept.sum()

    elsewhere = record_elsewhere(subject_of((step, model, None)), "cuda", "bfloat16")
    assert elsewhere.stopped == ""
    assert {"getitem", "setitem", "linear", "sum"} <= {call.name for call in elsewhere.recording.calls}
    assert not {"__getitem__", "__setitem__"} & set(vars(torch.Tensor))
    assert torch.equal(torch.tensor([torch.tensor(1)]), torch.tensor([1]))


def test_binary_cross_entropy_raises_on_cuda_only() -> None:
    model, inputs = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid()), torch.rand(3, 4)
    subject = subject_of((lambda: F.binary_cross_entropy(model(inputs), torch.ones(3, 1)), model, None))
    recorded = audit(subject, BF16, policies=policies("cpu"))
    rows, _ = differences(recorded.recording, record_elsewhere(subject, "cuda", "bfloat16"))
    (found,) = (f for f in elsewhere_findings(rows) if f.code == "raises-elsewhere")
    assert "binary_cross_entropy" in found.message
    assert "with_logits" in found.hint


def test_a_call_that_raises_elsewhere_in_a_region_without_gradients_is_the_last_one_compared() -> None:
    def audited(loss: Callable[[], torch.Tensor], model: nn.Module) -> tuple[tuple[DeviceDifference, ...], str]:
        subject = subject_of((loss, model, None))
        recorded = audit(subject, BF16, policies=policies("cpu"))
        return differences(recorded.recording, record_elsewhere(subject, "cuda", "bfloat16"))

    model, inputs = nn.Linear(4, 4), torch.randn(2, 4)

    def local() -> torch.Tensor:
        with torch.no_grad():  # memory of the CPU alone
            return model(inputs) + torch.from_numpy(model(inputs).float().numpy())

    rows, reason = audited(local, model)
    assert rows == ()
    assert "could not be followed there" in reason

    def banned() -> torch.Tensor:
        with torch.enable_grad():
            return F.binary_cross_entropy(model(inputs).sigmoid(), torch.ones(2, 4))

    rows, _ = audited(banned, model)
    assert [row.call for row in rows if row.there.startswith("raises")] == ["binary_cross_entropy"]


# G15
def test_backward_inside_autocast_is_seen_in_the_step_itself() -> None:
    model, inputs = nn.Linear(4, 1), torch.randn(2, 4)

    def step() -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(inputs).sum()
            loss.backward()
        return loss.detach()

    found = watch_step(subject_of((step, model, None)))
    assert [f.code for f in found] == ["backward-in-autocast"]


@pytest.mark.parametrize("broken", [False, True])
def test_gradients_that_are_no_numbers_are_told_and_nothing_is_said_of_their_range(broken: bool) -> None:
    """A loss that is NaN from the first step: 0 % vanish in fp16, and that means nothing."""
    torch.manual_seed(0)
    model, x = nn.Linear(4, 2), torch.randn(8, 4)

    def step() -> torch.Tensor:
        loss = model(x).square().mean() * (float("nan") if broken else 1.0)
        loss.backward()
        return loss

    subject = make_subject(step, device_type="cpu", model=model)
    found = finite_findings(measure_gradients(subject).reference, subject)
    assert len(found) == broken
    if broken:
        assert found[0].evidence == {"not_finite": 10, "elements": 10, "parameters": 2, "loss": "nan"}
        report = advise(step, device=open_device("cpu"), model=model, low=("bfloat16",), budget_ns=100_000_000)
        assert "gradients-not-finite" in [f.code for f in report.findings]
        assert report.gradients is not None
        assert report.gradients.zero_frac is None
        assert "0.000 %" not in " ".join(report.verdict.lines)


@pytest.mark.parametrize("networks", [1, 2])
def test_a_step_of_two_networks_is_told_how_far_it_is_read(networks: int) -> None:
    models = [nn.Linear(2, 2) for _ in range(networks)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    x = torch.randn(4, 2)

    def step() -> None:
        for model, optimizer in zip(models, optimizers, strict=True):
            model(x).sum().backward()
            optimizer.step()

    found = list(several_optimizers(make_subject(step, device_type="cpu")))
    assert [f.evidence["optimizers"] for f in found] == ([2] if networks == 2 else [])


def test_a_loss_that_is_no_number_is_told_although_its_gradients_are() -> None:
    model, x = nn.Linear(4, 1), torch.randn(8, 4)

    def step() -> torch.Tensor:
        loss = torch.log(model(x) - 1e9).mean()
        loss.backward()
        return loss

    subject = make_subject(step, device_type="cpu", model=model)
    found = finite_findings(measure_gradients(subject).reference, subject)
    assert [f.code for f in found] == ["loss-not-finite"]
