"""The CPU: a call returns when its work is done, so there is nothing to wait for."""

from __future__ import annotations

from referee.device.host import HostClocked


class CpuDevice(HostClocked):
    """The CPU. Outputs that live elsewhere (a step may compute on another device) are awaited all the same."""

    def __init__(self) -> None:
        super().__init__("cpu")
