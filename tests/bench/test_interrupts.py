"""Ctrl-C when everything has been measured: what there is is kept, wherever it comes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from referee.bench import compare as comparing
from referee.bench import measure as measuring
from referee.bench.interrupts import hold_interrupts
from referee.bench.plan import Plan
from referee.bench.sides import Candidate
from referee.bench.sweep import Built, sweep
from referee.device.fake import FakeSync
from referee.units import NS_PER_MS

PLAN = Plan(budget_ns=20 * NS_PER_MS, min_ns=10 * NS_PER_MS, clocks=("settled_amortised",))


@pytest.fixture(autouse=True)
def python_handles_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals are handled in the main thread alone")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupting(function: Callable[..., Any], *, at: int = 1) -> Callable[..., Any]:
    """``function``, the user pressing Ctrl-C as it is called for the ``at``-th time."""
    calls = 0

    def called(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            signal.raise_signal(signal.SIGINT)
        return function(*args, **options)

    return called


def test_a_first_one_waits_and_a_second_one_does_not() -> None:
    with hold_interrupts() as held:
        assert not held.interrupted
        signal.raise_signal(signal.SIGINT)
        assert held.interrupted
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_nothing_is_held_where_somebody_else_handles_interrupts() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    with hold_interrupts() as held:
        signal.raise_signal(signal.SIGINT)
    assert (seen, held.interrupted) == ([signal.SIGINT], False)


@pytest.mark.parametrize(("function", "at"), [("busy_beside", 2), ("check_kept", 1), ("collect", 1), ("_record", 1)])
def test_an_interrupt_after_the_last_block_keeps_the_number(
    function: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, function, interrupting(getattr(measuring, function), at=at))
    device = FakeSync()
    found = measuring.measure(lambda: device.run(host_ns=20_000), device=device, plan=PLAN)
    assert found.median_ns == pytest.approx(20_000)
    assert found.stop_reason == "interrupted"
    assert [f.code for f in found.findings].count("interrupted") == 1


def test_it_ends_the_sweep_with_the_point_it_came_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "collect", interrupting(measuring.collect, at=2))
    device = FakeSync()
    found = sweep(
        lambda _: Built(step=lambda: device.run(host_ns=20_000)),
        parameter="n",
        values=[1, 2, 3, 4],
        device=device,
        plan=PLAN,
    )
    assert [point.value for point in found.points] == [1, 2]
    assert all(point.median_ns for point in found.points)


def test_a_comparison_that_has_its_quads_keeps_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "_record", interrupting(comparing._record))
    device = FakeSync()
    sides = [Candidate(name=name, step=lambda: device.run(host_ns=20_000)) for name in ("a", "b")]
    assert comparing.compare(sides, device=device, plan=replace(PLAN, budget_ns=200 * NS_PER_MS)).answer == "same"


@pytest.mark.torch
def test_the_answer_is_shown_and_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    from referee.cli.main import main
    from referee.report import compose

    monkeypatch.setattr(compose, "compose", interrupting(compose.compose))
    path = tmp_path / "m.json"
    assert main(["bench", "--stmt", "1 + 1", "--budget", "30ms", "--json", str(path), "--no-progress"]) == 0
    assert path.exists()
    assert "1 + 1" in capsys.readouterr().out
