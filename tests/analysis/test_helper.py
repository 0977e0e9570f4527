"""A large trace is analysed by two processes: the report is the same, whatever becomes of the helper."""

import os

import pytest

from referee.analysis import diagnose as module
from referee.analysis.diagnose import diagnose
from referee.analysis.registry import ANALYSES
from referee.trace.builder import TraceBuilder
from referee.trace.columns import Trace


@pytest.fixture
def trace() -> Trace:
    builder = TraceBuilder()
    for step in range(3):
        begin = step * 100_000
        builder.step(step, begin, 90_000)
        for index in range(20):
            at, number = begin + index * 4_000, step * 20 + index + 1
            builder.op("aten::mm", at, 3_000).launch("cudaLaunchKernel", at + 500, 1_000, correlation=number)
            builder.kernel(f"k{index % 3}", at + 2_000, 900, correlation=number)
        builder.sync(begin + 82_000, 5_000)
    return builder.build()


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(module, "DETAILED_EVENTS", 0)
    monkeypatch.setattr(module, "may_fork", lambda: True)
    monkeypatch.setattr(module.os, "cpu_count", lambda: 2)
    return monkeypatch


def test_the_same_report(trace: Trace, large: pytest.MonkeyPatch):
    asked: list[object] = []
    fork = module.fork
    large.setattr(module, "fork", lambda work: asked.append(work) or fork(work))
    divided = diagnose(trace)
    assert len(asked) == 1
    assert divided == diagnose(trace, alone=True)
    assert len(asked) == 1
    assert divided.operators
    assert divided.top_kernels


def test_a_helper_that_dies(trace: Trace, large: pytest.MonkeyPatch):
    fork = module.fork
    large.setattr(module, "fork", lambda work: fork(lambda answers: os._exit(1)))
    assert diagnose(trace) == diagnose(trace, alone=True)


def test_a_helper_that_is_cut_off(trace: Trace, large: pytest.MonkeyPatch):
    fork = module.fork
    large.setattr(module, "fork", lambda work: fork(lambda answers: answers.write(b"\x80\x05\x95")))
    assert diagnose(trace) == diagnose(trace, alone=True)


def test_no_process_to_spare(trace: Trace, large: pytest.MonkeyPatch):
    def refuse(work):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    large.setattr(module, "fork", refuse)
    assert diagnose(trace) == diagnose(trace, alone=True)


def test_an_error_here_ends_the_helper(trace: Trace, large: pytest.MonkeyPatch):
    ended: list[bool] = []
    fork = module.fork

    def watched(work):
        helper = fork(work)
        end = helper.end
        return type(helper)(answers=helper.answers, end=lambda: (end(), ended.append(True)))

    def fail(study):
        raise ZeroDivisionError

    broken = tuple(a if a.apart else type(a)(a.name, a.question, a.needs, fail) for a in ANALYSES)
    large.setattr(module, "fork", watched)
    large.setattr(module, "ANALYSES", broken)
    with pytest.raises(ZeroDivisionError):
        diagnose(trace)
    assert ended == [True]
