"""The last act of a thread: done by that thread and once, or called off; what it holds is let go of."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from referee.capture.thread_end import LastAct


def in_a_thread(body: Callable[[], None]) -> int:
    """Run ``body`` in a thread of its own and wait for its end; which thread it was."""
    told: list[int] = []

    def run() -> None:
        told.append(threading.get_ident())
        body()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return told[0]


def test_it_is_done_by_its_own_thread_as_that_ends() -> None:
    done: list[int] = []
    acts: list[LastAct] = []

    def body() -> None:
        for _ in range(2):
            acts.append(LastAct(lambda: done.append(threading.get_ident())))
        assert done == []

    ident = in_a_thread(body)
    assert done == [ident, ident]
    assert [act.call_off() for act in acts] == [False, False]
    assert done == [ident, ident]


def test_called_off_it_is_not_done_and_holds_nothing() -> None:
    class Held:
        def act(self) -> None:
            raise AssertionError("called off")

    def body() -> None:
        held = Held()
        gone = weakref.ref(held)
        last = LastAct(held.act)
        assert last.call_off()
        assert not last.call_off()
        del held
        assert gone() is None

    in_a_thread(body)


def test_the_main_thread_has_none() -> None:
    done: list[int] = []
    last = LastAct(lambda: done.append(1))
    assert last.pending
    del last
    assert done == []
