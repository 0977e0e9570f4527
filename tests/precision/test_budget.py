"""The budget is that of everything: what there is no time for is left out, and more is never taken unsaid."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from referee.device.fake import FakeSync  # noqa: E402
from referee.device.noise import VirtualClock  # noqa: E402
from referee.device.registry import open_device  # noqa: E402
from referee.precision.advise import advise  # noqa: E402
from referee.precision.budget import USED_UP, Clock, floor_words, later_call_ns  # noqa: E402
from referee.precision.pilot import try_step  # noqa: E402
from referee.precision.subject import make_subject  # noqa: E402
from referee.units import NS_PER_MS, NS_PER_S  # noqa: E402

SECOND = NS_PER_S


def test_what_was_spent_before_counts() -> None:
    time = VirtualClock()
    clock = Clock(FakeSync(clock=time), 10 * SECOND, 4 * SECOND)
    assert clock.used_ns == 4 * SECOND
    assert clock.before(0.5)()
    time.advance(3 * SECOND)  # half of the six that were left
    assert not clock.before(0.5)()
    assert clock.before(0.6)()
    clock.timing_begins()
    time.advance(3 * SECOND)
    assert clock.is_up
    assert list(clock.findings()) == []


def test_more_than_the_budget_is_said_with_what_took_it() -> None:
    time = VirtualClock()
    clock = Clock(FakeSync(clock=time), 5 * SECOND, 3 * SECOND)
    time.advance(4 * SECOND)
    clock.timing_begins()
    time.advance(2 * SECOND)
    (found,) = clock.findings()
    assert found.code == "over-budget"
    assert found.evidence == {
        "taken_ns": 9 * SECOND,
        "budget_ns": 5 * SECOND,
        "before_ns": 3 * SECOND,
        "read_ns": 7 * SECOND,
    }
    for words in ("9.00 s", "5.00 s", "3.00 s to load", "4.00 s to read", "2.00 s to time"):
        assert words in found.message


def test_a_budget_below_the_floor_is_said_up_front() -> None:
    assert floor_words(5 * SECOND, spent_ns=3 * SECOND, call_ns=SECOND // 10) == ""
    said = floor_words(5 * SECOND, spent_ns=3 * SECOND, call_ns=SECOND)
    assert "--budget 5.00 s is short" in said
    assert "3.00 s" in said


def test_nothing_is_timed_when_the_budget_is_used_up_before() -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Linear(4, 1), torch.randn(8, 4)
    report = advise(
        lambda: model(x).square().mean(),
        device=open_device("cpu"),
        model=model,
        budget_ns=SECOND,
        spent_ns=2 * SECOND,
    )
    assert [(row.name, row.answer, row.median_ns) for row in report.timing[1:]] == [
        ("bfloat16", "cannot-tell", None),
        ("float16", "cannot-tell", None),
    ]
    assert {row.why_not for row in report.timing[1:]} == {USED_UP}
    assert USED_UP in report.timing[0].why_not
    assert report.verdict.dtype == "cannot-tell"
    assert USED_UP in report.verdict.lines[0]
    assert report.autocast is not None
    assert report.autocast.casts > 0
    assert report.autocast.casts_ns is None
    assert report.autocast.not_compared == USED_UP
    assert report.gradients is not None
    assert "only scale 1 was tried" in report.gradients.window_note
    assert report.provenance.method["clock"] == "none: not timed"
    assert "over-budget" in [finding.code for finding in report.findings]


@pytest.mark.parametrize(("until", "calls"), [(0, 2), (250, 3), (10_000, 5)])
def test_a_pilot_ends_when_the_time_is_up(until: int, calls: int) -> None:
    """One call to warm, one to time at least; where there is time four, as long as each takes."""
    time = VirtualClock()
    made: list[int] = []

    def step() -> None:
        made.append(time.now_ns)
        time.advance(100 * NS_PER_MS)

    pilot = try_step(step, device=FakeSync(clock=time), until_ns=until * NS_PER_MS)
    assert len(made) == calls
    assert pilot.ns == 100 * NS_PER_MS


@pytest.mark.parametrize(("first", "calls", "expected"), [(800, 1, 10), (5, 1, 5), (3000, 0, 3000)])
def test_a_first_call_that_loaded_something_is_made_once_more(first: int, calls: int, expected: int) -> None:
    time = VirtualClock()
    made: list[int] = []

    def step() -> None:
        made.append(time.now_ns)
        time.advance(10 * NS_PER_MS)

    subject = make_subject(step, device_type="cpu")
    found = later_call_ns(subject, FakeSync(clock=time), call_ns=first * NS_PER_MS)
    assert (found, len(made)) == (expected * NS_PER_MS, calls)
