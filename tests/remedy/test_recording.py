"""A step's operators are kept with their flow of data, can be issued again, and give the bytes a fused kernel moves."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from referee.device.registry import open_device  # noqa: E402
from referee.errors import CannotTell  # noqa: E402
from referee.remedy.compile_guess import guess_compile  # noqa: E402
from referee.remedy.compiled_costs import CompiledCosts  # noqa: E402
from referee.remedy.recording import Made, Recording, examples, record, replay_beside_ns, replay_ns  # noqa: E402
from referee.units import NS_PER_MS  # noqa: E402

pytestmark = pytest.mark.torch
DEVICE = open_device("cpu")


def recorded(step: Callable[[], object]) -> Recording:
    with torch.no_grad():
        return record(step, device=DEVICE)


def chain() -> Callable[[], object]:
    x, w = torch.rand(8, 8), torch.rand(8, 8)
    return lambda: torch.mm((x + 1) * 2, w).relu()


def test_arguments_refer_to_the_operators_that_made_them() -> None:
    found = recorded(chain())
    assert [op.short for op in found.ops] == ["add", "mul", "mm", "relu"]
    assert found.ops[1].args[0] == Made(0, 0)
    assert found.ops[2].args[0] == Made(1, 0)
    assert found.inputs == 2


def test_runs_end_at_products() -> None:
    found = recorded(chain())
    assert list(found.groups()) == [[0, 1], [3]]


def test_a_fused_kernel_moves_what_enters_and_what_is_read_later() -> None:
    moved = recorded(chain()).traffic([0, 1])
    size = 8 * 8 * 4
    assert (moved.read, moved.written, moved.fresh, moved.inside) == (size, size, (size,), size)


def test_in_place_work_writes_to_memory_that_is_there() -> None:
    x = torch.rand(16)
    moved = recorded(lambda: x.mul_(2).add_(1)).traffic([0, 1])
    assert (moved.read, moved.written, moved.fresh) == (64, 64, ())


def test_a_gather_reads_of_its_table_only_what_it_returns() -> None:
    table, rows = torch.rand(1000, 4), torch.tensor([1, 2])
    found = recorded(lambda: torch.nn.functional.embedding(rows, table))
    assert found.traffic([0]).read == 2 * 4 * 4 + 2 * 8


def test_operators_are_issued_again_and_each_is_timed() -> None:
    found = recorded(chain())
    times = replay_ns(found, device=DEVICE)
    assert len(times) == len(found.ops)
    assert all(took > 0 for took in times)


def test_examples_are_the_arguments_as_they_were() -> None:
    x = torch.rand(4)
    found = recorded(lambda: (x + 1) * 2)
    assert torch.equal(examples(found, [1])[1][0], x + 1)


class _Known(CompiledCosts):
    """Costs given instead of measured."""

    entry_ns = 10_000.0
    group_ns = 1_000.0
    product_ns = 0.0
    parameter_ns = 0.0
    module_ns = 0.0
    recurrent_ns = 0.0
    tape_ns = 4_400.0
    arithmetic_ns = 0.0

    def stream_ns(self, **_: object) -> float:
        return 0.0


@pytest.fixture
def _replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operator takes a microsecond, whatever else runs here."""
    times = lambda recording, **_: [1_000.0] * len(recording.ops)  # noqa: E731
    monkeypatch.setattr("referee.remedy.compile_guess.replay_ns", times)


@pytest.mark.usefixtures("_replayed")
def test_the_guess_is_the_sum_of_its_parts_inside_its_range() -> None:
    x = torch.rand(64)
    found = recorded(lambda: (x + 1) * 2)
    guess = guess_compile(found, costs=_Known(DEVICE), step_ns=22_000.0)
    assert guess.ratio == pytest.approx(0.5)
    assert guess.low < 0.5 < guess.high
    assert not guess.measure_it


@pytest.mark.usefixtures("_replayed")
def test_a_compiled_graph_that_is_recorded_costs_its_node() -> None:
    found = recorded(lambda: (torch.ones(64) + 1) * 2)
    plain, taped = (
        guess_compile(found, costs=_Known(DEVICE), step_ns=22_000.0, records=records) for records in (False, True)
    )
    assert taped.ratio - plain.ratio == pytest.approx(0.2)
    assert taped.high > plain.high


@pytest.mark.usefixtures("_replayed")
def test_operators_that_take_far_longer_than_their_step_were_disturbed_and_nothing_is_guessed() -> None:
    found = recorded(chain())
    for step_ns, told in ((400.0 * len(found.ops), True), (300.0 * len(found.ops), False)):
        if told:
            assert guess_compile(found, costs=_Known(DEVICE), step_ns=step_ns).ratio > 0
        else:
            with pytest.raises(CannotTell, match="disturbed"):
                guess_compile(found, costs=_Known(DEVICE), step_ns=step_ns)


@pytest.mark.usefixtures("_replayed")
def test_code_written_anew_is_named() -> None:
    x = torch.rand(64, 64)
    found = recorded(lambda: torch.softmax(x, -1))

    class Unknown(_Known):
        def alone_ns(self, *_: object, **__: object) -> None:
            return None

    guess = guess_compile(found, costs=Unknown(DEVICE), step_ns=100_000.0)
    assert guess.measure_it == ("aten::_softmax",)


@pytest.mark.usefixtures("_replayed")
def test_a_single_small_operator_is_expected_to_lose() -> None:
    """One kernel before, one after, and entering is paid on top: no gain to be had."""
    x = torch.rand(64)
    found = recorded(lambda: x + 1)
    guess = guess_compile(found, costs=_Known(DEVICE), step_ns=1_500.0)
    assert guess.low > 1


@pytest.mark.parametrize(("tick_ns", "short"), [(100, True), (10 * NS_PER_MS, False)])
def test_a_short_step_is_replayed_oftener_than_a_long_one(
    tick_ns: int, short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock that goes on by so much whenever it is read."""
    calls: list[None] = []
    found = recorded(lambda: torch.ones(4) + 1)
    ticking = SimpleNamespace(perf_counter_ns=count(0, tick_ns).__next__)
    monkeypatch.setattr("referee.remedy.recording.time", ticking)
    replay_ns(found, device=DEVICE, between=lambda: calls.append(None))
    assert (len(calls) > 9) == short
    assert len(calls) >= 3


def test_a_step_called_between_the_operators_keeps_its_own_grad_mode() -> None:
    """A step that trains is timed between its operators as it is: with its tape."""
    x, w = torch.rand(8, 8), torch.rand(8, 8, requires_grad=True)

    def step() -> object:
        loss = (x @ w).sum()
        loss.backward()
        return loss.detach()

    _, whole_ns = replay_beside_ns(record(step, device=DEVICE), step, device=DEVICE)
    assert whole_ns > 0
    modes: list[bool] = []
    replay_ns(recorded(chain()), device=DEVICE, between=lambda: modes.append(torch.is_grad_enabled()))
    assert all(modes)
