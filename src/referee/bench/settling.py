"""What is awaited at the end of a block, and on what? In words, as provenance says it."""

from __future__ import annotations

from referee.bench.loop import cutting
from referee.device.protocol import Device, Settling

_SETTLES: dict[Settling, str] = {
    Settling.SYNCHRONOUS: "nothing to wait for (a call returns when its work is done)",
    Settling.ASYNCHRONOUS: "every device of the last output and this one, once per block",
    Settling.LAZY: "every output of the block materialised and awaited",
}

_ELSEWHERE = "every device of the last output, once per block"
"""On the CPU, for a step that computes on another device as well."""

_HANDED_OVER = "each call's graph handed over, all of them awaited once per block"


def settle_words(device: Device, seen: object = None) -> str:
    """How a block on ``device`` is settled; ``seen`` is what was observed of the step."""
    used = {name.partition(":")[0] for name in getattr(seen, "devices", ())}
    if device.settling is Settling.SYNCHRONOUS and used - {"cpu", "meta"}:
        return _ELSEWHERE
    return _SETTLES[device.settling] if cutting(device) is None else _HANDED_OVER
