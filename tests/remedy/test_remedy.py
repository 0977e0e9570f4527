"""Fixes are held against eager: what differs is rejected with the reason, what matches is timed."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from referee.cli.main import main  # noqa: E402
from referee.device.registry import open_device  # noqa: E402
from referee.records.remedy import FixTried, RemedyReport, ranked  # noqa: E402
from referee.records.schema import load  # noqa: E402
from referee.remedy.attempt import attempt, refusals  # noqa: E402
from referee.remedy.check import hold_against, pin_random, run_once  # noqa: E402
from referee.remedy.compiler import CompilerLog  # noqa: E402
from referee.remedy.content import kind_of, read_content  # noqa: E402
from referee.remedy.fix import Fix, Loaded  # noqa: E402
from referee.remedy.fixes import CATALOGUE, fix_named, rewrite  # noqa: E402
from referee.target import Target, load_target  # noqa: E402

pytestmark = pytest.mark.torch

BUDGET_NS = 20_000_000
DEVICE = open_device("cpu")


def target_in(tmp_path: Path, body: str, *, name: str = "make", file: str = "t.py") -> Callable[[], Target]:
    path = tmp_path / file
    path.write_text("import torch\nfrom torch import nn\n" + textwrap.dedent(body))
    return lambda: load_target(f"{path}:{name}")


def try_fix(name: str, load_it: Callable[[], Target]) -> FixTried:
    fix = fix_named(name)
    assert fix is not None
    return attempt(fix, load_it, device=DEVICE, budget_ns=BUDGET_NS).fixes[0]


def planted(load_it: Callable[[], Target], change: Callable[[object], object]) -> FixTried:
    """The step with its output changed, as a fix."""
    fix = Fix(name="planted", title="", how="", attacks="", apply=lambda loaded, _: lambda: change(loaded.step()))
    return attempt(fix, load_it, device=DEVICE, budget_ns=BUDGET_NS).fixes[0]


LINEAR = """
def make():
    model = nn.Linear(16, 16)
    x = torch.randn(8, 16)
    def step():
        return model(x)
    step.model = model
    return step
"""

TRAINING = """
def make(optimizer="AdamW"):
    model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(8)])
    optimizer = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-2, foreach=False)
    x = torch.randn(8, 16)
    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()
    step.model, step.optimizer = model, optimizer
    return step
"""


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda y: y.double(), "dtype changed: float32 → float64"),
        (lambda y: y * 1.001, "values differ"),
        (lambda y: y.t().contiguous().t(), "strides changed"),
        (lambda y: y[:4], "shape changed"),
        (lambda y: (y, y.clone()), "nested as"),
        (lambda y: torch.where(torch.arange(16) == 3, torch.nan, y), "not a number"),
    ],
)
def test_a_planted_change_is_rejected_and_not_timed(
    tmp_path: Path, change: Callable[[object], object], word: str
) -> None:
    tried = planted(target_in(tmp_path, LINEAR), change)
    assert tried.outputs_match is False
    assert tried.measured_ratio is None
    assert word in tried.why_not


def test_memory_shared_with_an_input_is_rejected(tmp_path: Path) -> None:
    load_it = target_in(tmp_path, "def make():\n    x = torch.randn(8)\n    return lambda: x.clone()\n")
    other = target_in(tmp_path, "def make():\n    x = torch.randn(8)\n    return lambda: x\n", file="u.py")
    tried = attempt(rewrite("u.py:make", other), load_it, device=DEVICE, budget_ns=BUDGET_NS).fixes[0]
    assert tried.outputs_match is False
    assert "memory shared" in tried.why_not


def test_an_unchanged_step_matches_and_is_timed(tmp_path: Path) -> None:
    tried = planted(target_in(tmp_path, LINEAR), lambda y: y)
    assert tried.outputs_match is True
    assert tried.check is not None
    assert tried.check.worst_output == 0.0


def test_random_numbers_are_pinned_on_both_sides(tmp_path: Path) -> None:
    body = "def make():\n    x = torch.randn(64)\n    return lambda: nn.functional.dropout(x, 0.5)\n"
    assert planted(target_in(tmp_path, body), lambda y: y).outputs_match is True


def test_a_target_that_cannot_be_repeated_is_not_compared(tmp_path: Path) -> None:
    body = """
    import itertools
    import builtins
    if not hasattr(builtins, "_referee_test_count"):
        builtins._referee_test_count = itertools.count(1)
    def make():
        k = next(builtins._referee_test_count)
        x = torch.full((8,), float(k))
        return lambda: x * 2
    """
    tried = planted(target_in(tmp_path, body), lambda y: y)
    assert tried.outputs_match is None
    assert tried.check is not None
    assert "eager's own outputs differ" in " ".join(tried.check.notes)


@pytest.mark.parametrize("name", ["fused-optimizer", "foreach-optimizer", "set-to-none"])
def test_optimizer_fixes_change_nothing_but_the_time(tmp_path: Path, name: str) -> None:
    tried = try_fix(name, target_in(tmp_path, TRAINING))
    assert tried.applied
    assert tried.outputs_match is (None if tried.check is None else tried.check.match)
    if name == "set-to-none":
        assert tried.outputs_match is True
    else:
        assert tried.check is not None
        assert tried.outputs_match is True
        assert tried.check.worst_update is not None
        assert tried.check.worst_update < 1e-3


def test_the_fused_optimizer_issues_fewer_operators_and_allocations(tmp_path: Path) -> None:
    load_it = target_in(tmp_path, TRAINING)
    eager, fused = Loaded.of(load_it()), Loaded.of(load_it())
    for group in fused.held.optimizers[0].param_groups:
        group.update(fused=True, foreach=False)
    eager.step(), fused.step()
    before, after = (read_content(side.step, device=DEVICE) for side in (eager, fused))
    assert after.optimizer_ops < before.optimizer_ops / 2
    assert before.optimizer_ops >= 9 * 16  # an AdamW update takes some nine operators per tensor, 16 tensors


def test_a_wrong_optimizer_is_seen_in_the_updates(tmp_path: Path) -> None:
    load_it = target_in(tmp_path, TRAINING)

    def apply(loaded: Loaded, _: object) -> Callable[[], object]:
        loaded.held.optimizers[0].param_groups[0]["lr"] = 2e-2
        return loaded.step

    fix = Fix(name="lr", title="", how="", attacks="", apply=apply)
    tried = attempt(fix, load_it, device=DEVICE, budget_ns=BUDGET_NS).fixes[0]
    assert tried.outputs_match is False
    assert "updates differ" in tried.why_not


def test_fixes_that_make_no_sense_say_why(tmp_path: Path) -> None:
    reasons = refusals(CATALOGUE, target_in(tmp_path, TRAINING), device=DEVICE)
    assert "trains" in reasons["inference-mode"].why_not
    assert "CUDA device" in reasons["cuda-graph"].why_not
    assert "no convolution" in reasons["channels-last"].why_not
    assert "batch_size" in reasons["larger-batch"].why_not
    assert "fused-optimizer" not in reasons


@pytest.mark.parametrize(
    ("wants", "refused"), [("x", False), ("nothing", True), ("a model", False), ("an integer", False)]
)
def test_autograd_is_not_left_out_of_a_step_that_has_none(wants: str, refused: bool, tmp_path: Path) -> None:
    body = f"""
    def make():
        x = torch.randn(8, 8, requires_grad={wants == "x"})
        model = nn.Linear(8, 8) if {wants == "a model"} else nn.ReLU()
        return lambda: model(x).argmax(1) if {wants == "an integer"} else model(x)
    """
    reasons = refusals(CATALOGUE, target_in(tmp_path, body), device=DEVICE)
    for name in ("inference-mode", "no-grad", "freeze"):
        assert (name in reasons and "no tape" in reasons[name].why_not) is refused


def test_a_compiled_module_whose_compiled_forward_is_not_called_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = """
    def make():
        model, x = torch.compile(nn.Linear(8, 8)), torch.randn(8, 8)
        return lambda: model._orig_mod(x)
    """
    for frames, said in ((0, "nothing was compiled in its calls"), (1, "compiled already")):
        monkeypatch.setattr(type(DEVICE), "counters", lambda _, frames=frames: {"compile.frames": frames})
        reasons = refusals(CATALOGUE, target_in(tmp_path, body, file=f"t{frames}.py"), device=DEVICE)
        assert said in reasons["compile"].why_not


def test_a_fix_that_raises_in_the_users_code_says_where(tmp_path: Path) -> None:
    body = """
    def make():
        convolution, x = nn.Conv2d(3, 4, 3), torch.randn(2, 3, 8, 8)
        def step():
            return convolution(x).view(2, -1)
        return step
    """
    tried = try_fix("channels-last", target_in(tmp_path, body))
    assert "view size is not compatible" in tried.why_not
    assert tried.why_not.endswith("t.py:7")


def test_a_wrapper_that_the_step_overrides_is_told_from_one_that_works(tmp_path: Path) -> None:
    inner = """
    def make():
        m, x = nn.Linear(8, 8), torch.randn(8, 8)
        return torch.inference_mode(False)(lambda: m(x))
    """
    assert "sets its grad mode itself" in try_fix("inference-mode", target_in(tmp_path, inner)).why_not
    assert try_fix("inference-mode", target_in(tmp_path, LINEAR, file="v.py")).outputs_match is True


def test_channels_last_may_change_strides_alone(tmp_path: Path) -> None:
    body = """
    def make():
        model = nn.Conv2d(4, 8, 3)
        x = torch.randn(2, 4, 12, 12)
        def step():
            return model(x)
        step.model = model
        return step
    """
    tried = try_fix("channels-last", target_in(tmp_path, body))
    assert tried.outputs_match is True
    assert any("strides changed" in note for note in tried.notes)


def test_the_compilers_words_are_sorted() -> None:
    log = CompilerLog()
    log.note(
        "Graph break in user code at t.py:14\nGraph Break Reason: Encountered graph break when attempting to trace "
        "CALL:\n\nUnsupported Tensor.item() call\n  Explanation: …"
    )
    log.note(
        "Recompiling function forward in t.py:11\n    triggered by the following guard failure(s):\n"
        "    - 0/0: self.k == 0           # s.k+=1 (HINT: …)"
    )
    log.note("skipping cudagraphs due to mutated inputs (36 instances)")
    assert log.words() == (
        "graph break at t.py:14: Unsupported Tensor.item() call",
        "recompiled: forward at t.py:11: self.k == 0",
        "CUDA graphs not used: mutated inputs (36 instances)",
    )


def test_a_break_that_another_led_to_is_told_by_its_cause_and_by_what_it_names() -> None:
    log = CompilerLog()
    log.note(
        "Graph break in user code at t.py:26\nGraph Break Reason: Failed to handle graph break gracefully. "
        "Skipping the function and falling back to eager. Graph break encountered:\n\nDynamic shape operator\n"
        "  Explanation: Operator `aten.nonzero.default`'s output shape depends on input Tensor data.\n  Hint: …"
    )
    assert log.words() == (
        "graph break at t.py:26: Dynamic shape operator (aten.nonzero.default), and the whole function is left "
        "uncompiled",
    )


def test_a_guard_on_what_a_decorated_step_closes_over_is_named_as_written() -> None:
    cache: list[int] = []

    @torch.no_grad()
    def decode() -> int:
        return len(cache)

    log = CompilerLog(step=decode)
    closure = f"__closure__[{decode.__code__.co_freevars.index('func')}].cell_contents.__closure__[0].cell_contents"
    log.note(
        "Recompiling function inner in /site/torch/_dynamo/external_utils.py:67\n    triggered by the following guard "
        f"failure(s):\n    - 0/0: len(fn.{closure}) == 1"
    )
    (words,) = log.recompiles
    assert words.startswith(f"decode at {__file__}:")
    assert words.endswith(": len(cache) == 1")
    log.note("Recompiling function inner in t.py:3\n    - 0/0: fn.__closure__[7].cell_contents == 1")
    assert log.recompiles[-1] == "inner at t.py:3: fn.__closure__[7].cell_contents == 1"


@pytest.mark.slow
def test_a_counter_on_the_module_compiles_every_call(tmp_path: Path) -> None:
    body = """
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0
        def forward(self, x):
            self.calls += 1
            return x * self.calls
    def make():
        model, x = Counting(), torch.randn(8)
        def step():
            return model(x)
        step.model = model
        return step
    """
    tried = try_fix("compile", target_in(tmp_path, body))
    assert tried.measured_ratio is None
    assert "calls == " in tried.why_not


@pytest.mark.slow
def test_a_compiled_loss_that_changes_dtype_is_rejected(tmp_path: Path) -> None:
    body = """
    def make():
        p, y = torch.rand(64).bfloat16(), torch.rand(64).bfloat16()
        w = torch.rand(64)
        return lambda: nn.functional.binary_cross_entropy(p, y, weight=w)
    """
    tried = try_fix("compile", target_in(tmp_path, body))
    assert tried.outputs_match is False
    assert "dtype changed: bfloat16 → float32" in tried.why_not


@pytest.mark.slow
def test_compiled_dropout_differs_by_random_numbers_alone(tmp_path: Path) -> None:
    body = "def make():\n    x = torch.randn(256)\n    return lambda: nn.functional.dropout(x, 0.5) * 2\n"
    tried = try_fix("compile", target_in(tmp_path, body))
    assert tried.outputs_match is True
    assert tried.check is not None
    assert any("random numbers alone" in note for note in tried.check.notes)


def test_operators_are_sorted_by_what_a_compiler_does_with_them() -> None:
    kinds = {
        "aten::add_": "fused",
        "aten::mm": "product",
        "aten::view": "view",
        "aten::native_layer_norm": "replaced",
        "aten::exp_": "replaced",
        "aten::empty_like": "other",
        "aten::bernoulli_": "random",
    }
    assert {name: kind_of(name) for name in kinds} == kinds


def test_gains_come_first() -> None:
    def fix(name: str, ratio: float | None, answer: str | None) -> FixTried:
        return FixTried(
            name=name,
            title="",
            how="",
            attacks="",
            applied=ratio is not None,
            measured_ratio=ratio,
            answer=answer,  # type: ignore[arg-type]
        )

    fixes = (
        fix("no", None, None),
        fix("slower", 1.2, "slower"),
        fix("good", 0.9, "faster"),
        fix("best", 0.5, "faster"),
    )
    assert [f.name for f in ranked(fixes)] == ["best", "good", "slower", "no"]


def test_the_command_tries_one_fix_and_writes_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target_in(tmp_path, LINEAR)
    out = tmp_path / "r.json"
    words = ["remedy", f"{tmp_path / 't.py'}:make", "--fix", "freeze", "--in-process", "--budget", "50ms"]
    assert main([*words, "--json", str(out), "--no-progress"]) == 0
    record = load(out)
    assert isinstance(record, RemedyReport)
    assert [fix.name for fix in record.fixes] == ["freeze"]
    assert "Freeze" in capsys.readouterr().out.replace("freeze", "Freeze")


def test_an_unknown_fix_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["remedy", "t.py:make", "--fix", "faster-please"]) == 2
    assert "there is no such fix" in capsys.readouterr().err
    assert sys.exc_info() == (None, None, None)


def test_the_same_seed_gives_the_same_outcome(tmp_path: Path) -> None:
    load_it = target_in(tmp_path, TRAINING)
    outcomes = []
    for _ in range(2):
        pin_random()
        loaded = Loaded.of(load_it())
        outcomes.append(run_once(loaded.step, loaded, device=DEVICE))
    fix = Fix(name="", title="", how="", attacks="", apply=lambda loaded, _: loaded.step)
    found = hold_against(outcomes[0], outcomes[1], fix=fix, dtype="float32")
    assert found.match is True
    assert (found.worst_output, found.worst_gradient, found.worst_update) == (0.0, 0.0, 0.0)


def test_hundreds_of_small_parameters_take_the_fused_optimizer_fewer_operators(tmp_path: Path) -> None:
    """Foreach still makes one call per tensor on the CPU, fused one per list: counted before and after."""
    body = TRAINING.replace("range(8)", "range(60)")
    counts = {}
    for name in ("foreach-optimizer", "fused-optimizer"):
        tried = try_fix(name, target_in(tmp_path, body))
        assert tried.before is not None
        assert tried.after is not None
        counts[name] = (tried.before.operators or 0, tried.after.operators or 0)
    assert counts["foreach-optimizer"][1] > 0.8 * counts["foreach-optimizer"][0]
    assert counts["fused-optimizer"][1] < 0.6 * counts["fused-optimizer"][0]


@pytest.mark.parametrize("example", ["transformer.py:train_step", "convnet.py:infer", "inference.py:without"])
@pytest.mark.parametrize(("change", "word"), [(lambda y: y.double(), "dtype changed"), (lambda y: y * 1.001, "values")])
def test_planted_changes_of_the_examples_are_rejected(
    example: str, change: Callable[[object], object], word: str
) -> None:
    path = Path(__file__).resolve().parents[2] / "examples" / example
    tried = planted(lambda: load_target(str(path), batch_size=2), change)
    assert tried.outputs_match is False
    assert tried.measured_ratio is None
    assert word in tried.why_not


NORM = """
def make(momentum={momentum}):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=momentum))
    x = torch.randn(4, 3, 8, 8)
    def step():
        with torch.no_grad():
            return model(x)
    step.model = model
    return step
"""


@pytest.mark.parametrize("momentum", [0.0, 0.2])
def test_running_statistics_that_differ_are_seen_though_the_outputs_agree(tmp_path: Path, momentum: float) -> None:
    load_it = target_in(tmp_path, NORM.format(momentum=0.1))
    other = target_in(tmp_path, NORM.format(momentum=momentum), file="u.py")
    tried = attempt(rewrite("u.py:make", other), load_it, device=DEVICE, budget_ns=BUDGET_NS).fixes[0]
    assert tried.outputs_match is False
    assert "changed buffer" in tried.why_not
    same = attempt(rewrite("t.py:make", load_it), load_it, device=DEVICE, budget_ns=BUDGET_NS).fixes[0]
    assert same.outputs_match is True
