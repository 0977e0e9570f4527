"""The CPU: a call returns when its work is done, so there is nothing to wait for."""

from __future__ import annotations

from referee.device.host import HostClocked, load_torch


class CpuDevice(HostClocked):
    """The CPU. Outputs that live elsewhere (a step may compute on another device) are awaited all the same."""

    def __init__(self) -> None:
        super().__init__("cpu")


def set_threads(threads: int) -> None:
    """Let torch compute one operation with ``threads`` threads from now on, in this process."""
    load_torch().set_num_threads(threads)
