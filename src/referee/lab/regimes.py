"""When does the work overtake the overhead, and what helps before it does? Sweeps, batch sizes and fixes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf, log

from referee.anatomy.timing import Pair, Timed
from referee.bench.sweep import Built, sweep
from referee.device.protocol import Device
from referee.errors import CannotTell, EnvironmentLacks
from referee.lab.claims.diagnosing import BARELY
from referee.lab.laboratory import Laboratory, Part, Reading, counted, plus, told
from referee.lab.measuring import timed
from referee.records.finding import Scalar
from referee.records.measurement import SweepPoint
from referee.units import format_frac, format_ns, format_ratio

_SIZES = tuple(1 << power for power in range(14, 28))
"""Elements of the tensors of E6: from far below the claim to far above it."""

_BATCHES = (1, 4, 16, 64, 256, 1024)
_SERVED = 256
_MOSTLY = 0.5
_LARGER = 8
"""Times the batch, where a larger one is tried as a fix."""


def crossing(lab: Laboratory) -> Reading:
    """E6. Between which sizes does the device become slower than the host? By the device's own clock."""
    device = lab.open("cuda")
    before: tuple[int, float] | None = None
    for elements in _SIZES:
        x = lab.operators.randn(elements).to(device.name)
        clocks = lab.time(partial(lab.operators.add, x, x), device=device).clocks
        if clocks.device_ns is None or clocks.enqueue_ns is None:
            continue  # so host-bound that the marks time the host's pace
        above = log(clocks.device_ns / clocks.enqueue_ns)
        if above > 0:
            if before is None:
                raise CannotTell(f"The device is slower than the host at {elements:,} elements already.")
            low, below = before
            value = low * (elements / low) ** (below / (below - above))
            return Reading(value=value, low=low, high=elements, figures={"enqueue_ns": clocks.enqueue_ns})
        before = (elements, above)
    raise CannotTell(f"The host is slower than the device up to {_SIZES[-1]:,} elements.")


def batch_regimes(lab: Laboratory) -> Reading:
    """E8. Of a growth of the batch, what share shows in the time? At the large end, less at the small one."""
    torch = lab.operators
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6)))

    def build(size: int) -> Built:
        x = torch.randn(size, 64)
        return Built(step=lambda: model(x))

    # A point's interval enters with both of its ends, so each point gets twice the time.
    plan = replace(lab.plan, budget_ns=2 * lab.plan.budget_ns)
    found = sweep(build, parameter="batch_size", values=_BATCHES, device=lab.device, plan=plan)
    points = found.points
    if len(points) < len(_BATCHES):
        raise CannotTell("The sweep is not complete.")
    small, large = _growth(points[0], points[1]), _growth(points[-2], points[-1])
    fit = found.fit
    knee = f"the knee is at a batch of {fit.knee:.0f}" if fit.knee is not None else "there is no knee"
    parts = [
        f"{format_frac(part[1])} ({format_frac(part[0])} to {format_frac(part[2])}) of it shows from {values[0]:,} to "
        f"{values[1]:,}"
        for part, values in ((small, _BATCHES[:2]), (large, _BATCHES[-2:]))
    ]
    note = f"{', '.join(parts)}; {knee}."
    figures: dict[str, Scalar] = {"small": small[1], "large": large[1], "law": fit.law, "knee": fit.knee}
    return Reading(
        value=large[1] - small[1],
        low=large[0] - small[2],
        high=large[2] - small[0],
        note=note,
        figures=figures,
        taken=f"{len(points)} batch sizes, each {min(p.measurement.n for p in points):,} blocks or more",
    )


def _growth(first: SweepPoint, second: SweepPoint) -> tuple[float, float, float]:
    """The growth of the time over the growth of the batch, both as logarithms: least, likely, most."""
    ends = []
    for point in (first, second):
        if point.median_ns is None or point.ci_low_ns is None or point.ci_high_ns is None:
            raise CannotTell(f"There is no number at a batch of {point.value:g}.")
        ends.append((point.ci_low_ns, point.median_ns, point.ci_high_ns))
    (low, middle, high), (next_low, next_middle, next_high) = ends
    grown = log(second.value / first.value)
    return log(next_low / high) / grown, log(next_middle / middle) / grown, log(next_high / low) / grown


def batch_growth(lab: Laboratory) -> Reading:
    """D5."""
    torch = lab.operators
    model = torch.nn.Sequential(*(m for _ in range(4) for m in (torch.nn.Linear(32, 32), torch.nn.ReLU())))
    layer = torch.nn.Linear(512, 512)
    small, work = (
        plus(
            lab.excess(
                Timed("m(x)", {"m": m, "x": torch.randn(_LARGER * rows, width)}),
                Timed("m(x)", {"m": m, "x": torch.randn(rows, width)}),
            ),
            1.0,
        )
        for m, rows, width in ((model, 1, 32), (layer, 64, 512))
    )
    part = Part(
        name="a step that is work, at eight times its batch",
        value=work.value,
        low=work.low,
        high=work.high,
        claimed_low=BARELY,
        claimed_high=inf,
        unit="ratio",
    )
    note = f"A layer of 512 at batch 512 takes {format_ratio(work.value)} its time at batch 64: there the work counts."
    note = told(_issuing_alone(lab, small), note)
    return replace(small, note=note, figures={**small.figures, "work_ratio": work.value}, parts=(part,))


def _issuing_alone(lab: Laboratory, small: Reading) -> str:
    """What of the small step's time is there with next to no arithmetic: the reason why it does not move."""
    torch = lab.operators
    least = torch.nn.Sequential(*(m for _ in range(4) for m in (torch.nn.Linear(1, 1), torch.nn.ReLU())))
    (bare,) = lab.pairs((Pair("least", Timed("m(x)", {"m": least, "x": torch.randn(1, 1)})),))
    whole_ns = small.figures.get("lower_ns")
    if not isinstance(whole_ns, float) or whole_ns <= 0:
        return ""
    share = bare.point / whole_ns
    mostly = (
        "overhead sets the time of the small step" if share > _MOSTLY else "arithmetic sets much of it all the same"
    )
    return (
        f"At batch 1 the small step takes {format_ns(whole_ns)}; the same layers of 1 × 1, with next to no arithmetic, "
        f"take {format_ns(bare.point)}, {format_frac(share)} of that: {mostly}."
    )


def served_batch(lab: Laboratory) -> Reading:
    """D8. The price cancels: items per second at one size over those at another."""
    torch = lab.operators
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
    one, many = torch.randn(1, 64), torch.randn(_SERVED, 64)
    grown = plus(lab.excess(Timed("m(x)", {"m": model, "x": many}), Timed("m(x)", {"m": model, "x": one})), 1.0)
    if grown.low <= 0:
        raise CannotTell("The time of the larger batch cannot be told from nothing.")
    times, gain = format_ratio(grown.value), format_ratio(_SERVED / grown.value)
    note = f"{_SERVED} times the samples take {times} the time, and {_SERVED} ÷ {times.rstrip('×')} is {gain}: what "
    note += "each call costs by itself is shared by its batch."
    return replace(grown, value=_SERVED / grown.value, low=_SERVED / grown.high, high=_SERVED / grown.low, note=note)


def fixes(lab: Laboratory) -> Reading:
    """D6. Each fix on a launch-bound step, by time per sample."""
    device = lab.open("cuda")
    torch = lab.operators
    model = torch.nn.Sequential(*(m for _ in range(8) for m in (torch.nn.Linear(64, 64), torch.nn.GELU())))
    model = model.to(device.name)
    x, larger = (torch.randn(size, 64).to(device.name) for size in (4, 4 * _LARGER))
    compiled = torch.compile(model)
    with torch.no_grad():
        eager = _time(lab, device, lambda: model(x))
        gains = {
            "torch.compile": eager / _time(lab, device, lambda: compiled(x)),
            "CUDA graph": eager / _time(lab, device, lab.replaying(lambda: model(x), device.name)),
            "larger batch": eager * _LARGER / _time(lab, device, lambda: model(larger)),
        }
    values = list(gains.values())
    checks = {f"{name} helps": gain > 1 for name, gain in gains.items()}
    checks["in this order"] = values == sorted(values, reverse=True)
    parts = ", ".join(f"{name} {format_ratio(gain)}" for name, gain in gains.items())
    held = sum(checks.values()) / len(checks)
    return replace(counted(held, **gains), note=f"Gain per sample: {parts}.")


def _time(lab: Laboratory, device: Device, step: Callable[[], object]) -> float:
    return timed(lab.time(step, device=device)).value


def faster_device(lab: Laboratory) -> Reading:
    """D7. Two devices that a large product tells apart, and a small model's time on each."""
    devices = [lab.open("cuda:0"), _second(lab)]
    torch = lab.operators

    def on(device: Device, size: int) -> Reading:
        x = torch.randn(size, size).to(device.name)
        return timed(lab.time(lambda: torch.mm(x, x), device=device))

    large: Sequence[Reading] = [on(device, 4096) for device in devices]
    if min(large[0].high, large[1].high) >= max(large[0].low, large[1].low):
        raise EnvironmentLacks("two CUDA devices of different speed: these two are as fast as each other")
    fast = int(large[1].value < large[0].value)
    quick, slow = on(devices[fast], 32), on(devices[1 - fast], 32)
    words = [f"{devices[i].name} {format_ns(large[i].value)}" for i in (fast, 1 - fast)]
    note = f"A product of 4,096 by 4,096 takes {words[0]} and {words[1]}."
    return Reading(value=quick.value / slow.value, low=quick.low / slow.high, high=quick.high / slow.low, note=note)


def _second(lab: Laboratory) -> Device:
    return lab.open("cuda:1")
