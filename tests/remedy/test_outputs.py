"""Whatever a step returns is held against eager's, brought back from bfloat16, or said not to be comparable."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from referee.device.registry import open_device  # noqa: E402
from referee.records.remedy import FixTried, RemedyReport  # noqa: E402
from referee.remedy.attempt import attempt, refusals  # noqa: E402
from referee.remedy.compiled_in_place import own_code_words  # noqa: E402
from referee.remedy.fix import Fix  # noqa: E402
from referee.remedy.fixes import back_to_float32, fix_named  # noqa: E402
from referee.target import Target, load_target  # noqa: E402

pytestmark = pytest.mark.torch

BUDGET_NS = 20_000_000
DEVICE = open_device("cpu")

MODEL = """\
import torch
from dataclasses import dataclass
from torch import nn

@dataclass
class Out:
    logits: object
    loss: float = 0.0
    name: str = ""

def make():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
    x, kept = torch.randn(8, 16), [torch.zeros(())]
    def step():
        {body}
    step.model = model
    return step
"""


def target(tmp_path: Path, body: str) -> Callable[[], Target]:
    path = tmp_path / "t.py"
    path.write_text(MODEL.format(body=body))
    return lambda: load_target(f"{path}:make")


def planted(load_it: Callable[[], Target], change: Callable[[Any], object], **given: Any) -> RemedyReport:
    fix = Fix(
        name="planted", title="", how="", attacks="", apply=lambda loaded, _: lambda: change(loaded.step()), **given
    )
    return attempt(fix, load_it, device=DEVICE, budget_ns=BUDGET_NS)


SPARSE = "return x.relu().to_sparse(), model(x)"
ARRAY = "return model(x).detach().numpy()"
OUT = "y = model(x); return Out(y, 2.5, 'a')"


@pytest.mark.parametrize(
    ("body", "change", "word"),
    [
        (SPARSE, lambda y: (y[0] * 1.001, y[1]), "output 0: values differ"),
        (SPARSE, lambda y: (y[0].to_dense(), y[1]), "float32 sparse_coo → float32"),
        (ARRAY, lambda y: y * 1.001, "output 0: values differ"),
        (ARRAY, lambda y: y.astype("float64"), "dtype changed"),
        (OUT, lambda y: type(y)(y.logits, 2.6, "a"), "number 0: values differ"),
        (OUT, lambda y: type(y)(y.logits, 2.5, "b"), "nested as"),
        (OUT, lambda y: type(y)(None, 2.5, "a"), "nested as"),
    ],
)
def test_a_change_in_any_kind_of_output_is_rejected(
    tmp_path: Path, body: str, change: Callable[[Any], object], word: str
) -> None:
    tried = planted(target(tmp_path, body), change).fixes[0]
    assert (tried.applied, tried.outputs_match, tried.answer) == (True, False, None)
    assert word in tried.why_not


@pytest.mark.parametrize("body", [SPARSE, ARRAY, OUT])
def test_an_unchanged_output_of_any_kind_matches(tmp_path: Path, body: str) -> None:
    assert planted(target(tmp_path, body), lambda y: y).fixes[0].outputs_match is True


@pytest.mark.parametrize(
    ("body", "compared"),
    [("model(x)", False), ("kept[0].add_(1)", True), ("model(x).sum().backward()", True), ("return 3.5", True)],
    ids=["nothing", "written", "gradients", "a number"],
)
def test_what_returns_nothing_and_changes_nothing_is_compared_with_nothing_and_not_compiled(
    tmp_path: Path, body: str, compared: bool
) -> None:
    """A compiler leaves such work out, and would be called faster for it."""
    load_it = target(tmp_path, body)
    tried = planted(load_it, lambda y: y).fixes[0]
    assert tried.outputs_match is (True if compared else None)
    assert any("nothing could be compared" in note for note in tried.notes) is not compared
    refused = refusals([_named("compile")], load_it, device=DEVICE)
    assert ("compile" in refused) is not compared
    if not compared:
        assert "returns nothing and writes to nothing" in refused["compile"].why_not


def _named(name: str) -> Fix:
    fix = fix_named(name)
    assert fix is not None
    return fix


@dataclass
class Answer:
    logits: Any
    words: str


Pair = namedtuple("Pair", ["a", "b"])


def test_bfloat16_is_brought_back_wherever_it_is() -> None:
    low, kept = torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.int64)
    for output, tensor in (
        (low, lambda y: y),
        ([low, kept], lambda y: y[0]),
        ((kept, low), lambda y: y[1]),
        (Pair(low, 1), lambda y: y.a),
        ({"x": {"y": low}}, lambda y: y["x"]["y"]),
        (OrderedDict(x=low), lambda y: y["x"]),
        (Answer([low], "a"), lambda y: y.logits[0]),
    ):
        made = back_to_float32(output)
        assert type(made) is type(output)
        assert tensor(made).dtype == torch.float32
        assert tensor(output).dtype == torch.bfloat16
    for output in (kept, [kept, None], Pair(kept, "a"), {"x": 1}, Answer(kept, "a"), None, "text"):
        assert back_to_float32(output) is output


@pytest.mark.parametrize(
    "body", ["return Out(model(x))", "y = model(x); y.mean().backward(); return y.mean().detach()"]
)
def test_autocast_is_not_rejected_for_the_dtype_it_returns(tmp_path: Path, body: str) -> None:
    found = attempt(_named("autocast-bf16"), target(tmp_path, body), device=DEVICE, budget_ns=BUDGET_NS).fixes[0]
    assert found.applied
    assert "dtype changed" not in found.why_not


def test_autocast_has_nothing_to_do_without_a_product(tmp_path: Path) -> None:
    refused = refusals([_named("autocast-bf16")], target(tmp_path, "return x.exp() * 2"), device=DEVICE)
    assert "no matrix product" in refused["autocast-bf16"].why_not


TRAINS = "loss = model(x).square().mean(); loss.backward(); return loss.detach()"


def test_torchs_own_modules_are_compiled_in_place_as_well(tmp_path: Path) -> None:
    """``nn.Sequential(…).compile()`` compiles nothing; the fix does, and says what to write instead."""
    from torch._dynamo.utils import counters

    from referee.remedy.compiled_in_place import _compile_in_place

    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.inner(x)

    for module in (torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), torch.nn.Linear(4, 4), Own()):
        torch.compiler.reset()
        counters.clear()
        expected = module(torch.ones(2, 4))
        _compile_in_place(module, backend="eager")
        assert torch.equal(module(torch.ones(2, 4)), expected)
        assert counters["frames"]["total"] >= 1, type(module).__name__


def test_a_compiler_that_was_given_nothing_is_not_timed(tmp_path: Path) -> None:
    tried = planted(target(tmp_path, "return model(x)"), lambda y: y, compiles=True).fixes[0]
    assert tried.applied
    assert tried.answer is None
    assert "was given nothing" in tried.why_not


def test_the_words_for_torchs_own_modules_stand_where_the_step_trains(tmp_path: Path) -> None:
    words: list[tuple[str, ...]] = []

    def listen(situation: Any) -> tuple[str, ...]:
        words.append(own_code_words(situation))
        return ()

    for body in (TRAINS, "return model(x)"):
        planted(target(tmp_path, body), lambda y: y * 2, finds=listen)
    assert "Sequential is torch's own code" in words[0][0]
    assert words[1] == ()


def test_a_graph_that_eager_keeps_is_not_laid_to_the_fix(tmp_path: Path) -> None:
    report = planted(target(tmp_path, "kept[0] = kept[0] + model(x).sum(); return kept[0]"), lambda y: y)
    found: list[FixTried | Any] = [finding for finding in report.findings if finding.code == "graph-held"]
    assert [finding.evidence.get("side") for finding in found] == ["eager"]


CACHING = """\
import torch
from torch import nn

class Caching(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.{name} = nn.Linear(16, 16), None

    def forward(self, x):
        if self.{name} is None:
            self.{name} = {made}
        return self.inner(x) * 2

def make():
    torch.manual_seed(0)
    model, x = Caching(), torch.randn(8, 16)
    return lambda: model(x)
"""


@pytest.mark.parametrize(
    ("fix", "made", "said"),
    [
        ("inference-mode", "torch.ones(16)", True),
        ("inference-mode", "1.0", False),
        ("no-grad", "torch.ones(16)", False),
    ],
)
def test_what_a_first_call_in_inference_mode_makes_is_named(tmp_path: Path, fix: str, made: str, said: bool) -> None:
    (tmp_path / "t.py").write_text(CACHING.format(name="table", made=made))
    load_it = lambda: load_target(f"{tmp_path / 't.py'}:make")  # noqa: E731
    tried = attempt(_named(fix), load_it, device=DEVICE, budget_ns=BUDGET_NS).fixes[0]
    assert tried.outputs_match is True
    assert any("table is an inference tensor" in note for note in tried.notes) is said
