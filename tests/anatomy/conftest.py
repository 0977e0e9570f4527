"""What the tests of anatomy share: the compiled probe where there is a compiler, and a device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Children are forked: with one thread there is no pool to be lost."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def probe() -> Any:
    """The compiled module; a skip with the reason where it cannot be had. Compiled at most once per torch build."""
    from referee.anatomy.probe import NoProbe, load_probe

    found = load_probe()
    if isinstance(found, NoProbe):
        pytest.skip(f"no compiled probe: {found.why}")
    return found.module


@pytest.fixture
def cpu() -> Any:
    """The CPU on the clock of this thread's own time, which stands still while others have the core.

    Which of two calls is dearer, and by how much, is then the same on a machine that does much else meanwhile.
    """
    from referee.device.cpu import CpuDevice

    class OwnTime(CpuDevice):
        """As the CPU, but for the clock."""

        def now_ns(self) -> int:
            return time.thread_time_ns()

    return OwnTime()
