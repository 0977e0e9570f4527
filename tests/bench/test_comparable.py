"""What forbids a comparison is found before it is taken, called by its own name, and left to its own side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

import referee
from referee.bench.comparable import what_differs, why_forbidden
from referee.bench.compare import Candidate, compare
from referee.bench.plan import Plan
from referee.cli.main import main
from referee.device.cpu import CpuDevice
from referee.device.fake import FakeLazy, FakeSync
from referee.device.state import kept_state, read_state
from referee.errors import OptionError
from referee.records.compare import Comparison
from referee.records.finding import Finding
from referee.records.provenance import Provenance, TensorSpec
from referee.records.schema import load
from referee.units import NS_PER_MS, NS_PER_S

PLAN = Plan(budget_ns=60 * NS_PER_MS)
SIDES = """
import torch

def _step(n=64):
    x = torch.randn(n, n)
    return lambda: x @ x

def base(): return _step()

def high():
    torch.set_float32_matmul_precision("high")
    return _step()

def one_thread():
    torch.set_num_threads(1)
    return _step()

def double():
    torch.set_default_dtype(torch.float64)
    return _step()

def sets():
    x = torch.randn(64, 64)
    def step():
        torch.set_num_threads(1)
        return x @ x
    return step

def cached():
    x, kept = torch.randn(64, 64), []
    def step():
        if not kept:
            kept.append(x @ x)
        return kept[0]
    return step
"""


@pytest.fixture
def sides(tmp_path: Path) -> Path:
    path = tmp_path / "sides.py"
    path.write_text(SIDES)
    return path


def run(path: Path, *names: str, options: tuple[str, ...] = (), threads: int = 2) -> Comparison:
    out = path.parent / "out.json"
    targets = [f"{path}:{name}" for name in names]
    with kept_state():
        torch.set_num_threads(threads)
        before = read_state()
        main(["compare", *targets, "--budget", "60ms", "--no-progress", "--json", str(out), *options])
        assert before.moved(read_state()) == ()
    found = load(out)
    assert isinstance(found, Comparison)
    return found


def codes(found: Comparison) -> list[str]:
    return [finding.code for finding in found.findings if finding.severity == "fatal"]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("high", "switches.float32_matmul_precision"),
        ("one_thread", "chip.threads"),
        ("double", "switches.default_dtype"),
    ],
)
def test_a_switch_that_one_factory_sets_stays_on_its_side_and_is_told(sides: Path, name: str, path: str) -> None:
    for names in (("base", name), (name, "base")):
        found = run(sides, *names)
        assert codes(found) == ["not-comparable"]
        assert path in [difference.path for difference in found.pairs[0].differences]
        values = {side.name.rpartition(":")[2]: side.provenance.value(path) for side in found.sides}
        assert values["base"] != values[name]


def test_ignored_switches_are_each_in_force_around_their_own_blocks(sides: Path) -> None:
    found = run(sides, "base", "one_thread", options=("--ignore", "chip.threads"))
    assert codes(found) == []
    assert found.pairs[0].quads
    assert [side.provenance.value("chip.threads") for side in found.sides] == [2, 1]


def test_threads_are_varied_without_the_target_declaring_them(sides: Path) -> None:
    found = run(sides, "base", options=("--vary", "threads=1,2"))
    assert [side.name for side in found.sides] == ["threads=1", "threads=2"]
    assert [side.provenance.value("chip.threads") for side in found.sides] == [1, 2]
    assert codes(found) == []
    assert found.pairs[0].quads


def test_each_side_computes_under_its_own_switches() -> None:
    seen: dict[str, set[int]] = {"a": set(), "b": set()}
    candidates = []
    with kept_state():
        for threads, name in ((2, "a"), (1, "b")):
            torch.set_num_threads(threads)

            def step(name: str = name) -> torch.Tensor:
                seen[name].add(torch.get_num_threads())
                return torch.ones(64)

            candidates.append(Candidate(name=name, step=step, state=read_state()))
        found = compare(candidates, device=CpuDevice(), plan=PLAN, ignoring=("chip.threads",))
    assert found.pairs[0].quads
    assert seen == {"a": {2}, "b": {1}}


def test_a_step_that_sets_a_switch_is_refused_unless_that_is_ignored(sides: Path) -> None:
    found = run(sides, "base", "sets")
    assert codes(found)[0] == "switch-set"
    assert "chip.threads: 2, then 1" in found.why
    ignored = run(sides, "base", "sets", options=("--ignore", "chip.threads"))
    assert codes(ignored) == []
    assert [side.provenance.value("chip.threads") for side in ignored.sides] == [2, 1]


def test_a_measurement_tells_what_its_step_sets() -> None:
    x = torch.ones(8, 8)

    def step() -> torch.Tensor:
        torch.set_float32_matmul_precision("medium")
        return x @ x

    with kept_state():
        torch.set_float32_matmul_precision("highest")
        found = referee.bench(step, budget="30ms")
    assert "switch-set" in [finding.code for finding in found.findings]
    assert found.provenance.value("switches.float32_matmul_precision") == "medium"


def test_a_side_whose_result_is_kept_is_called_that(sides: Path) -> None:
    found = run(sides, "base", "cached", options=("--budget", "1s"), threads=1)
    assert codes(found)[0] == "cached-result"
    assert "cached" in found.why


def test_memory_that_another_library_writes_is_not_taken_for_a_result_that_is_kept() -> None:
    """Of its kernel torch sees no operator and no write."""
    import numpy as np

    def build() -> Callable[[], torch.Tensor]:
        x, out = np.linspace(1, 2, 4096), torch.zeros(4096, dtype=torch.float64)
        memory = out.numpy()

        def step() -> torch.Tensor:
            np.multiply(x, 2, out=memory)
            return out

        return step

    found = referee.compare(build(), build(), budget="60ms", threads=1)
    assert "cached-result" not in [finding.code for finding in found.findings]


def test_inputs_that_were_not_seen_do_not_lie_in_another_order() -> None:
    """What another thread runs is not watched."""
    x = torch.randn(64, 64)

    def in_a_thread() -> torch.Tensor:
        results: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: results.append(x + 1))
        thread.start()
        thread.join()
        return results[0]

    found = referee.compare(lambda: x + 1, in_a_thread, budget="60ms", threads=1)
    assert "layouts-differ" not in [finding.code for finding in found.findings]


def test_a_side_that_hands_out_copies_of_a_kept_result_is_called_that() -> None:
    """It does run an operator, but a call on inputs not used before costs ten times as much."""
    device = FakeSync()

    def full() -> object:
        return device.run(host_ns=5_000, device_ns=95_000)

    a = Candidate(name="a", step=full)
    b = Candidate(name="b", step=lambda: device.run(host_ns=5_000, device_ns=5_000), fresh=lambda: full)
    found = compare([a, b], device=device, plan=Plan(budget_ns=NS_PER_S))
    assert codes(found) == ["cached-result"]
    assert found.why.startswith("b: ")
    assert found.pairs[0].quads == 0


def test_a_side_that_compiles_at_every_call_is_called_that() -> None:
    device = FakeLazy()
    keys = iter(range(10**9))
    a = Candidate(name="a", step=lambda: device.run(host_ns=5_000, device_ns=20_000))
    b = Candidate(name="b", step=lambda: device.run(host_ns=5_000, device_ns=20_000, key=next(keys)))
    found = compare([a, b], device=device, plan=PLAN)
    assert set(codes(found)) == {"recompiled"}
    assert found.why.startswith("b: ")
    assert found.pairs[0].quads == 0


@dataclass(frozen=True)
class Observed:
    dtype: str = "float32"
    shapes: tuple[TensorSpec, ...] = ()
    findings: tuple[Finding, ...] = field(default_factory=tuple)


def spec(rows: int) -> TensorSpec:
    return TensorSpec(role="input", shape=(rows,), stride=(1,), dtype="float32", device="cpu")


def test_what_was_not_seen_is_no_difference() -> None:
    def of(*shapes: TensorSpec, **more: Any) -> Provenance:
        method = {"clock": "settled_amortised", **more.pop("method", {})}
        return Provenance(dtype="float32", shapes=shapes, chip={}, method=method, software={}, switches=more)

    seen = of(spec(8), autocast_site="nowhere", method={"input_fill": "as the target fills them"})
    unseen = of(autocast_site="not read", method={"input_fill": "no inputs seen"})
    assert what_differs(seen, unseen, ignoring=()) == ()
    assert [d.path for d in what_differs(seen, of(spec(9)), ignoring=())] == ["shapes"]


def test_of_three_each_row_tells_its_own_reason() -> None:
    device = FakeSync()

    def side(name: str, rows: int) -> Candidate:
        step: Callable[[], object] = lambda: device.run(host_ns=25_000)  # noqa: E731
        return Candidate(name=name, step=step, observation=Observed(shapes=(spec(rows),)))

    found = compare([side("a", 8), side("b", 8), side("c", 9), side("d", 10)], device=device, plan=PLAN)
    b, c, d = found.pairs
    assert "a and c differ" in c.why
    assert "a and d differ" in d.why
    assert "not measured, because another side" in b.why
    assert "a and c differ" in repr(found)
    assert "findings: not-comparable" in repr(found)
    assert "ratios=" not in repr(found)


def test_the_reason_of_a_pair_is_its_sides_own() -> None:
    def fault(side: str) -> Finding:
        return Finding(code="zero-inputs", severity="fatal", message=f"{side} is zero", evidence={"side": side})

    assert why_forbidden("a", "c", [fault("b"), fault("c")]) == "c is zero"
    assert why_forbidden("a", "b", [fault("a")]) == "a is zero"


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("nonsense.key", "All keys stand under `provenance` in any record"),
        ("switches.tf32", "Did you mean switches.tf32_matmul or switches.tf32_cudnn"),
        ("Threads", "Did you mean chip.threads?"),
        ("software.pytorch", "software.torch"),
    ],
)
def test_a_key_that_nothing_states_cannot_be_ignored(
    sides: Path, capsys: pytest.CaptureFixture[str], key: str, words: str
) -> None:
    assert main(["compare", f"{sides}:base", f"{sides}:base", "--ignore", key, "--no-progress"]) == 2
    told = capsys.readouterr().err
    assert key in told
    assert words in told
    assert len(told) < 400  # the list of all keys would be 1,300 characters
    with pytest.raises(OptionError, match="no provenance key"):
        referee.compare(torch.neg, torch.neg, args=(torch.ones(4),), budget="20ms", ignoring=[key])
