"""What does the profiler itself cost, per thing that it records? Calibrated on a chain of 1,000 adds, here and now.

The profiler's records are made on the thread that dispatches, so a step with many small operators becomes slower by
what its records cost. One figure per row does not carry over from step to step: an optimizer that loops over its
parameters pays 0.28 µs a row, a training step 0.4 to 0.75 µs (torch 2.13, one thread). The difference is the backward
pass: the engine makes up each node's name anew for the profiler (demangles it, and prints it into a string), which
costs another 0.7 to 1.25 µs a node. So the chain is calibrated forward, without a tape, for the cost of an operator
row, and backward for what a node costs beyond its rows; with stacks or modules, calls of functions and of modules are
calibrated as well. Marking an iteration sweeps the inner caches, which costs the iteration behind it 10 to 25 µs, an
eighth of a short step: measured on one link of the chain. What remains is cache too: an operator amid large ones pays
up to 0.2 µs more than one in the chain, but then it also takes longer, so that the share stays small
(``benchmarks/profiler_cost.py`` shows how well this fits). The other way about, a tight loop over the same few tiny
operators stays in the caches and pays 0.28 µs where the chain pays 0.36 (0.30 if the chain runs in inference mode);
greedy decoding, which recording makes 1.6 times as slow, is so corrected to 0.75 to 0.85 of its true time. Nothing was
fitted to that: a figure per row serves steps that recording slows by less than half.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import quantiles
from time import perf_counter_ns
from typing import Any

from referee.capture.integrity import check_integrity
from referee.capture.rows import decode
from referee.capture.schedule import Cycle
from referee.capture.torch_window import TorchWindow
from referee.errors import CannotTell
from referee.records.capture import Capture, CaptureOptions, Integrity, ProfilerCost
from referee.units import format_range_ns

CHAIN = 1000
"""Adds in the chain; with the other operators it has some 1,900 rows, and 1,200 nodes in its backward pass."""
_GROUPS = 25
"""Groups of other operators amid the adds. More of them make the average row dearer: 0.31 µs for adds alone, 0.35 with
25 groups, 0.38 with 50. In-place operators in a loop pay 0.26, operators amid matrix products up to 0.5."""
_WIDTH = 8
ROUNDS = 9
_TIMED = 2
"""Timed runs per round, after one that warms the caches which the profiler's start and stop have swept."""
_STEPS = 8
"""Timed iterations per round, of a few operators each, after one that goes untimed."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """One thing to calibrate: ``run(prepare())`` is timed, but for ``prepare``."""

    prepare: Callable[[], Any]
    run: Callable[[Any], object]


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A link's times, without the profiler and with it, and the rows that one run leaves."""

    plain_ns: Sequence[int]
    profiled_ns: Sequence[int]
    rows: Integrity

    @property
    def added_ns(self) -> float:
        """What recording added to one run: the difference of the lower quartiles.

        The lower quartile, because what else runs on the machine only ever adds, in episodes that a median does not
        survive.
        """
        return lower_quartile(self.profiled_ns) - lower_quartile(self.plain_ns)


def calibrate_cost(*, options: CaptureOptions) -> ProfilerCost:
    """The profiler's cost with ``options``: each link with and without it in turn, :data:`ROUNDS` times; a second.

    Raises :class:`~referee.errors.CannotTell` where a cost cannot be told from nothing.
    """
    links = _links(options)
    plain: dict[str, list[int]] = {name: [] for name in links}
    profiled: dict[str, list[int]] = {name: [] for name in links}
    rows = {name: _count_rows(link, options=options) for name, link in links.items()}
    for _ in range(ROUNDS):
        _time_links(links, into=plain, between=lambda: None)
        window = TorchWindow(Cycle(warmup_from=0, first=0, end=2), device_name="cpu", options=options)
        window.start(0)
        _time_links(links, into=profiled, between=window.step)
        window.stop()
        window.release()
    timed = {name: Timed(plain_ns=plain[name], profiled_ns=profiled[name], rows=rows[name]) for name in links}
    return cost_from(timed, options=options)


def option_costs() -> tuple[tuple[CaptureOptions, ProfilerCost | CannotTell], ...]:
    """What does each option cost here, beside the profiler alone (the first entry)? About ten seconds."""
    alone = CaptureOptions()
    each = (replace(alone, **{field.name: True}) for field in fields(CaptureOptions))
    return tuple((options, _cost_or_why_not(options)) for options in (alone, *each))


def _cost_or_why_not(options: CaptureOptions) -> ProfilerCost | CannotTell:
    try:
        return calibrate_cost(options=options)
    except CannotTell as error:
        return error


def cost_from(timed: Mapping[str, Timed], *, options: CaptureOptions) -> ProfilerCost:
    """The costs from the times of ``operators``, ``backward`` and ``step``, ``frames`` and ``annotations`` if there.

    One after the other: what a link adds, less what is known already of the other rows in it. Low and high are the
    quartiles of an operator row's cost over the rounds, widened to hold the point. What a backward node or an iteration
    costs on top is a small remainder, taken as 0 where it comes out below.

    Raises :class:`~referee.errors.CannotTell` where the quartiles of a row's cost hold 0, or lie below: recording takes
    time, so what was measured then is the machine.
    """
    known = ProfilerCost(
        per_row_ns=0.0, low_ns=0.0, high_ns=0.0, chain=CHAIN, rounds=len(timed["operators"].plain_ns), options=options
    )
    if "frames" in timed:
        known = replace(known, per_frame_ns=_told(timed["frames"], "frames", "a Python function", known=known)[1])
    if "annotations" in timed:
        told = _told(timed["annotations"], "annotations", "a module's range", known=known)
        known = replace(known, per_annotation_ns=told[1])
    low, point, high = _told(timed["operators"], "ops", "an operator row", known=known)
    known = replace(known, per_row_ns=point, low_ns=low, high_ns=high)
    known = replace(known, per_backward_ns=max(0.0, _per(timed["backward"], "backward_ops", known=known)))
    return replace(known, per_step_ns=max(0.0, timed["step"].added_ns - charged_ns(timed["step"].rows, known)))


def _told(timed: Timed, rows: str, words: str, *, known: ProfilerCost) -> tuple[float, float, float]:
    """The cost of a row of the kind named ``rows`` (``words``) between its quartiles, if these lie above 0."""
    count: int = getattr(timed.rows, rows)
    pairs = [
        (with_it - without - charged_ns(timed.rows, known)) / max(1, count)
        for without, with_it in zip(timed.plain_ns, timed.profiled_ns, strict=True)
    ]
    quarter, _, three_quarters = quantiles(pairs, n=4, method="inclusive")
    point = _per(timed, rows, known=known)
    low, high = min(quarter, point), max(three_quarters, point)
    if low <= 0:
        raise CannotTell(
            f"What recording {words} costs here cannot be told, because its calibration gave "
            f"{format_range_ns(low, high)}, which is not above zero.",
            hint="Something else ran on these cores: calibrate again on a quieter machine.",
        )
    return low, point, high


def _per(timed: Timed, rows: str, *, known: ProfilerCost) -> float:
    """What is left of a link's added time, per row of the kind named ``rows``."""
    count: int = getattr(timed.rows, rows)
    return (timed.added_ns - charged_ns(timed.rows, known)) / max(1, count)


def charged_ns(rows: Integrity, cost: ProfilerCost) -> float:
    """What recording these rows costs, but for marking iterations."""
    return (
        rows.ops * cost.per_row_ns
        + rows.backward_ops * cost.per_backward_ns
        + rows.frames * cost.per_frame_ns
        + rows.annotations * cost.per_annotation_ns
    )


def lower_quartile(times_ns: Sequence[float]) -> float:
    """The lower quartile; of a single time, that time."""
    return quantiles(times_ns, n=4, method="inclusive")[0] if len(times_ns) > 1 else times_ns[0]


def corrected_step_ns(capture: Capture) -> float | None:
    """How long would the recorded step have taken without the profiler? Its lower quartile less what its rows cost.

    ``None`` where the cost was not calibrated, the file could not be read back, no iteration was recorded, or the rows
    would have cost as much as the whole step, so that the cost cannot be theirs.
    """
    checked = [file.integrity for file in capture.files if file.integrity is not None]
    if capture.cost is None or not capture.step_ns or len(checked) < len(capture.files):
        return None
    cost_ns = sum(charged_ns(integrity, capture.cost) for integrity in checked) / len(capture.step_ns)
    corrected = lower_quartile(capture.step_ns) - cost_ns - capture.cost.per_step_ns
    return corrected if corrected > 0 else None


def correction_ratio(capture: Capture) -> float | None:
    """How well does the cost explain what recording did here? Corrected over unprofiled step: 1.0 if it does wholly.

    Of both the lower quartile, as in the calibration. ``None`` where either is not known.
    """
    corrected = corrected_step_ns(capture)
    return None if corrected is None or not capture.unprofiled_ns else corrected / lower_quartile(capture.unprofiled_ns)


def _time_links(links: Mapping[str, Link], *, into: Mapping[str, list[int]], between: Callable[[], None]) -> None:
    """Time each link a few times; ``between`` marks the iterations of the one named ``step``."""
    for name, link in links.items():
        link.run(link.prepare())
        for _ in range(_STEPS if name == "step" else _TIMED):
            prepared = link.prepare()
            if name == "step":
                between()
            begun = perf_counter_ns()
            link.run(prepared)
            into[name].append(perf_counter_ns() - begun)


def _count_rows(link: Link, *, options: CaptureOptions) -> Integrity:
    """The rows that one run leaves, counted as in a file."""
    prepared = link.prepare()
    window = TorchWindow(Cycle(warmup_from=0, first=0, end=2), device_name="cpu", options=options)
    window.start(0)
    link.run(prepared)
    window.stop()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.json"
        window.export(path)
        window.release()
        file = decode(path.read_bytes())
    assert file is not None, "the chain has no name that could break its JSON"
    return check_integrity(file)


def _links(options: CaptureOptions) -> dict[str, Link]:
    forward, short = _chain(groups=_GROUPS, adds=CHAIN // _GROUPS), _chain(groups=1, adds=1)
    start, weight = _operands(tape=False)
    taped = _operands(tape=True)

    def clear_and_run() -> Any:
        for operand in taped:
            operand.grad = None
        return forward(*taped)

    links = {
        "operators": Link(prepare=lambda: None, run=lambda _: forward(start, weight)),
        "backward": Link(prepare=clear_and_run, run=lambda value: value.backward()),
        "step": Link(prepare=lambda: None, run=lambda _: short(start, weight)),
    }
    if options.stacks:
        links["frames"] = Link(prepare=lambda: None, run=lambda _: _call_functions())
    if options.modules:
        links["annotations"] = _module_calls()
    return links


def _operands(*, tape: bool) -> tuple[Any, Any]:
    import torch

    generator = torch.Generator().manual_seed(0)
    start, weight = (torch.randn(_WIDTH, _WIDTH, generator=generator).requires_grad_(tape) for _ in range(2))
    return start, weight


def _chain(*, groups: int, adds: int) -> Callable[[Any, Any], Any]:
    """Adds, amid other small operators so that they are not hotter in every cache than those of a real step."""
    import torch
    from torch.nn import functional

    other = torch.ones(_WIDTH, _WIDTH)

    def run(start: Any, weight: Any) -> Any:
        value = start
        for _ in range(groups):
            for _ in range(adds):
                value = torch.add(value, other)
            value = functional.gelu(functional.layer_norm(value, (_WIDTH,)) @ weight)
            value = torch.softmax(value, -1).transpose(0, 1).reshape(_WIDTH, _WIDTH)
            value = value * other - value.mean()
        return value.sum()

    return run


def _call_functions() -> None:
    for _ in range(CHAIN):
        _function()


def _function() -> None:
    """Nothing: what a stack costs is recording that it was called."""


def _module_calls() -> Link:
    import torch

    chain = torch.nn.Sequential(*(torch.nn.Identity() for _ in range(CHAIN)))
    value = torch.ones(1)
    return Link(prepare=lambda: None, run=lambda _: chain(value))
