"""A step that keeps what its earlier calls made, or whose state stops being data, is told to the reader."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

import referee
from referee.records.measurement import Measurement

torch = pytest.importorskip("torch")

Step = Callable[[], object]


def fed_back() -> Step:
    weight, box = torch.randn(8, 8, requires_grad=True), [torch.randn(2, 8)]

    def step() -> object:
        box[0] = torch.tanh(box[0] @ weight)
        return box[0]

    return step


def summed() -> Step:
    model, x, total = torch.nn.Linear(8, 1), torch.randn(2, 8), [torch.zeros(())]

    def step() -> object:
        loss = model(x).mean()
        total[0] = total[0] + loss
        loss.backward()
        return loss.detach()

    return step


class Recurrent(torch.nn.Module):  # type: ignore[misc]  # torch is not followed
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)
        self.state = torch.randn(2, 8)

    def forward(self, x: object) -> object:
        self.state = torch.tanh(self.inner(self.state) + x)
        return self.state


def in_a_module() -> Step:
    model, x = Recurrent(), torch.randn(2, 8)
    return lambda: model(x)


def listed(*, grad: bool) -> Step:
    x, kept = torch.randn(2, 8, requires_grad=grad), list[object]()

    def step() -> object:
        kept.append(x.relu())
        return kept[-1]

    return step


def let_go() -> Step:
    weight, box, calls = torch.randn(8, 8, requires_grad=True), [torch.randn(2, 8)], [0]

    def step() -> object:
        calls[0] += 1
        before = box[0] if calls[0] % 10 else box[0].detach()
        box[0] = torch.tanh(before @ weight)
        return box[0]

    return step


def last_few() -> Step:
    x, kept = torch.randn(2, 8, requires_grad=True), deque[object](maxlen=16)

    def step() -> object:
        kept.append(x.relu())
        return kept[-1]

    return step


def trained() -> Step:
    model, x = torch.nn.Linear(8, 8), torch.randn(4, 8)
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> object:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def measured(step: Step) -> Measurement:
    return referee.bench(step, budget="60ms", threads=1)


def codes(found: Measurement) -> set[str]:
    return {finding.code for finding in found.findings}


@pytest.mark.parametrize("make", [fed_back, summed, in_a_module, lambda: listed(grad=True)])
def test_a_graph_that_grows_from_call_to_call_is_told(make: Callable[[], Step]) -> None:
    (finding,) = [f for f in measured(make()).findings if f.code == "graph-held"]
    assert finding.severity == "warning"
    assert finding.evidence["nodes_per_call"]
    assert int(str(finding.evidence["calls"])) > 1


def test_results_that_are_kept_are_told() -> None:
    found = measured(listed(grad=False))
    assert "results-kept" in codes(found)
    assert "graph-held" not in codes(found)


@pytest.mark.parametrize("make", [let_go, last_few, trained])
def test_a_state_that_is_let_go_is_none_that_is_kept(make: Callable[[], Step]) -> None:
    assert not codes(measured(make())) & {"graph-held", "results-kept", "odd-values"}


def test_a_side_that_keeps_its_graphs_is_named() -> None:
    found = referee.compare(("keeps", fed_back()), ("not", let_go()), budget="60ms", threads=1)
    (finding,) = [f for f in found.findings if f.code == "graph-held"]
    assert finding.evidence["side"] == "keeps"


def growing(factor: float, *, start: float) -> Step:
    """A state that some tens of calls make something else, so that a warm-up is long enough on any machine."""
    x = torch.full((8, 8), start)
    return lambda: x.mul_(factor)


@pytest.mark.parametrize(("factor", "start", "what"), [(2.0, 1e32, "infinite or NaN"), (0.9, 1e-37, "subnormal")])
def test_a_state_that_stops_being_data_is_told(factor: float, start: float, what: str) -> None:
    (finding,) = [f for f in measured(growing(factor, start=start)).findings if f.code == "odd-values"]
    assert what in finding.message


def test_a_state_whose_own_method_is_measured_is_looked_at_as_well() -> None:
    x = torch.full((8, 8), 1e32)
    found = referee.bench(x.mul_, 2.0, budget="60ms", threads=1)
    assert "became infinite or NaN" in next(f.message for f in found.findings if f.code == "odd-values")


def test_a_state_that_has_become_zero_has_no_number() -> None:
    found = measured(growing(0.25, start=1e-37))
    assert found.median_ns is None
    assert any(f.code == "zero-inputs" and f.severity == "fatal" for f in found.findings)


@pytest.mark.parametrize(("value", "words"), [(float("nan"), "NaN"), (1e-42, "subnormal")])
def test_inputs_that_are_no_data_are_told(value: float, words: str) -> None:
    x = torch.full((8, 8), value)
    (finding,) = [f for f in measured(lambda: x + 1).findings if f.code == "odd-values"]
    assert words in finding.message


def test_a_mask_of_infinities_is_data() -> None:
    mask = torch.full((8, 8), float("-inf")).triu(1)
    scores = torch.randn(8, 8)
    assert "odd-values" not in codes(measured(lambda: (scores + mask).softmax(-1)))


def test_an_output_that_is_no_number_is_told() -> None:
    x = torch.randn(8, 8).abs()
    (finding,) = [f for f in measured(lambda: (-x).log()).findings if f.code == "odd-values"]
    assert "output" in finding.message
