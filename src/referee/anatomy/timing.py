"""What does one thing cost beyond another, both called from Python in the same way? Pairs of blocks, taken in turn.

Each pair has blocks of its own, so that stages which meet at a layer share no sample, and their sum proves something.
Blocks are timed by :func:`referee.bench.loop.run_block`; what is timed is a loop in Python over one expression (hot),
or over a mix of other operators with the expression between them (cold).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np

from referee.anatomy.mix import Mix
from referee.bench.calibrate import measure_overhead
from referee.bench.loop import quiet_collector, run_block
from referee.bench.plan import Progress, ProgressCallback, no_progress
from referee.device.protocol import Device
from referee.errors import CannotTell
from referee.records.estimate import Estimate
from referee.stats.floors import floor_difference
from referee.stats.summary import FloatArray
from referee.units import format_range_ns

BLOCK_NS = 100_000
"""Shorter than a measurement's blocks, because there are some thirty of them in a round."""

_MOST_TURNS = 20_000
_LEAST_ROUNDS = 12

ENOUGH_ROUNDS = 80
_STRETCH = 4
"""Beside busy processes a budget holds few rounds: it is stretched until there are enough, up to so many times. With 15
to 30 rounds one stage of eight differed by more than a tenth between processes, with 80 and more one of a hundred."""
_MIN_CLEAN = 6

_ALONE_NS = 10 * BLOCK_NS
"""A call as long as this is a block by itself: what a block costs, and what ran before it, are no part of it."""

LONG_NS = 5_000
"""From here on a call's own spread, some percent of it (with where its kernel finds the stack, among others), is as
large as the stages that are told from it."""

Context = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, eq=False)
class Timed:
    """One expression to be timed: its source, the values it uses, and the context it runs in."""

    source: str
    names: Mapping[str, Any] = field(default_factory=dict)
    context: Context = nullcontext

    def loop(self, mix: Mix | None = None) -> Callable[[int], None]:
        """A function that evaluates the expression ``n`` times; with ``mix``, that goes through the mix ``n`` times."""
        body = self.source if mix is None else mix.around(self.source)
        lines = "\n".join(f"        {line}" for line in body.splitlines())
        space: dict[str, Any] = {"repeat": repeat, **self.names, **(mix.names if mix is not None else {})}
        exec(compile(f"def run(n):\n    for _ in repeat(None, n):\n{lines}\n", "<timed>", "exec"), space)
        run: Callable[[int], None] = space["run"]
        return run


NOTHING = Timed("pass")
"""The loop alone."""


@dataclass(frozen=True, eq=False)
class Pair:
    """What ``upper`` costs beyond ``lower``; nothing is timed in the context of ``upper``, and the mix around it."""

    name: str
    upper: Timed
    lower: Timed = NOTHING

    def __post_init__(self) -> None:
        """Put the empty loop into the other side's context: other operators are not as dear under every mode."""
        if self.lower is NOTHING:
            object.__setattr__(self, "lower", replace(NOTHING, context=self.upper.context))

    @property
    def mixes_alike(self) -> bool:
        """Whether a mix around either side costs the same, so that it falls out of the difference."""
        return self.upper.context is self.lower.context


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What was found for one pair, in nanoseconds per call; ``cold`` where that was taken."""

    name: str
    hot: Estimate
    cold: Estimate | None


@dataclass
class _Side:
    """One side of a pair while it is timed: how often its block evaluates the expression, and what was read."""

    timed: Timed
    loop: Callable[[int], None] = lambda _: None
    turns: int = 1
    places: int = 1
    """How many evaluations a turn holds."""
    about_ns: float = 0.0
    """Of one evaluation, while the turns of a block were counted out."""
    leads: bool = False
    """Whether a turn that is not timed goes before each block."""
    samples: list[float] = field(default_factory=list)
    disturbed: list[float] = field(default_factory=list)
    """What preempted blocks took: too long, by nobody knows how much."""

    @property
    def clean(self) -> int:
        """Blocks that nobody preempted."""
        return len(self.samples) - len(self.disturbed)


_Sides: TypeAlias = tuple[_Side, _Side]


def time_pairs(
    pairs: Sequence[Pair],
    *,
    device: Device,
    budget_ns: int,
    mix: Mix | None = None,
    level: float = 0.95,
    cold_frac: float = 0.45,
    block_ns: int = BLOCK_NS,
    enough: int = ENOUGH_ROUNDS,
    progress: ProgressCallback = no_progress,
) -> tuple[Cost, ...]:
    """Time every pair for about ``budget_ns`` together; with ``mix`` also cold, in ``cold_frac`` of that time.

    Fewer than ``enough`` hot rounds in that time stretch it. Nothing is taken cold where the calls are so long that
    the fewest cold rounds would not fit the stretched budget: such a call finds the caches as it left them itself. Nor
    is a pair whose sides run in different contexts: what the mix costs in each would be part of the difference.

    Raises what an expression raises, and :class:`~referee.errors.CannotTell` where hardly a block is clean.
    """
    hot = _sides(pairs)
    until_ns = device.now_ns() + budget_ns
    with quiet_collector():
        for side in _flat(hot):
            _prepare(side, device=device, mix=None, block_ns=block_ns)
        alike = [number for number, pair in enumerate(pairs) if pair.mixes_alike]
        fits = mix is not None and _fits(hot, mix=mix, budget_ns=budget_ns)
        cold = _sides([pairs[number] for number in alike]) if fits else []
        for side in _flat(cold):
            _prepare(side, device=device, mix=mix, block_ns=block_ns)
        for both in (*hot, *cold):
            _level(both)
        _take(
            hot,
            cold,
            device=device,
            until_ns=until_ns,
            latest_ns=until_ns + (_STRETCH - 1) * budget_ns,
            enough=enough,
            cold_frac=cold_frac,
            progress=progress,
        )
    cold_of = {number: _difference(both, level=level) for number, both in zip(alike, cold, strict=False)}
    return tuple(
        Cost(name=pair.name, hot=_difference(hot[number], level=level), cold=cold_of.get(number))
        for number, pair in enumerate(pairs)
    )


def _sides(pairs: Sequence[Pair]) -> list[_Sides]:
    return [(_Side(pair.upper), _Side(pair.lower)) for pair in pairs]


def _fits(hot: Sequence[_Sides], *, mix: Mix, budget_ns: int) -> bool:
    """Whether the calls are short, or the fewest cold rounds, with each at every place of the mix, in the budget."""
    calls_ns = [side.about_ns for side in _flat(hot)]
    return max(calls_ns) < _ALONE_NS or _LEAST_ROUNDS * mix.places * sum(calls_ns) <= _STRETCH * budget_ns


def _flat(sides: Sequence[_Sides], *, backwards: bool = False, flipped: bool = False) -> list[_Side]:
    pairs = reversed(sides) if backwards else sides
    return [side for both in pairs for side in (reversed(both) if flipped else both)]


def _difference(sides: _Sides, *, level: float) -> Estimate:
    """The difference of the floors; of two long calls with an interval that holds what each half of the rounds says.

    Halves by time and by turns, because what differs between them (where memory lay for a while, what ran before) is
    seen by no resampling of all of them together.
    """
    upper, lower = (_series(side.samples) for side in sides)
    found = floor_difference(upper, lower, level=level)
    if any(side.about_ns < LONG_NS for side in sides):
        return found
    middle = len(upper) // 2
    halves = (slice(0, middle), slice(middle, None), slice(0, None, 2), slice(1, None, 2))
    parts = [(upper[half], lower[half]) for half in halves]
    points = [floor_difference(*part, level=level).point for part in parts if _both_known(*part)]
    return replace(found, low=min(found.low, *points), high=max(found.high, *points))


def _both_known(*series: FloatArray) -> bool:
    return all(bool(np.isfinite(values).any()) for values in series)


def _series(values: list[float]) -> FloatArray:
    return np.array(values, dtype=np.float64)


def _prepare(side: _Side, *, device: Device, mix: Mix | None, block_ns: int) -> None:
    """Find out how many turns make a block; the first ones pay what is paid once."""
    loop = side.timed.loop(mix)
    with side.timed.context():
        turns = 1
        loop(2)
        while True:
            block = min(run_block(partial(loop, turns), device=device, calls=1).issue_ns for _ in range(2))
            if block >= block_ns / 2 or turns >= _MOST_TURNS:
                break
            turns = min(_MOST_TURNS, max(turns * 2, int(turns * min(8.0, block_ns / max(1, block)))))
    side.loop, side.turns, side.places = loop, turns, 1 if mix is None else mix.places
    side.about_ns = block / turns / side.places


def _level(both: _Sides) -> None:
    """Two long calls get blocks of the same length, behind a call that is not timed, unless each is a block by itself.

    So few calls make such a block that what a block costs by itself weighs in it, its first call behind that of another
    stage, and an odd number of outputs that lie in two places by turns.
    """
    if any(not LONG_NS <= side.about_ns < _ALONE_NS for side in both):
        return
    turns = max(side.turns for side in both)
    for side in both:
        side.turns = turns + turns % 2
        side.leads = True


def _take(
    hot: Sequence[_Sides],
    cold: Sequence[_Sides],
    *,
    device: Device,
    until_ns: int,
    latest_ns: int,
    enough: int,
    cold_frac: float,
    progress: ProgressCallback,
) -> None:
    """Rounds until the time is up, hot and cold ones mingled: a slow moment of the machine then falls on both.

    Of the time taken the cold rounds get ``cold_frac``.
    """
    read_ns = measure_overhead(device).read_ns
    begun_ns, spent, rounds = device.now_ns(), {"hot": 0, "cold": 0}, {"hot": 0, "cold": 0}
    while True:
        lacking = [kind for kind, sides in (("hot", hot), ("cold", cold)) if sides and rounds[kind] < _LEAST_ROUNDS]
        over = device.now_ns() >= (until_ns if rounds["hot"] >= enough else latest_ns)
        if over and not lacking:
            break
        share = cold_frac * (spent["hot"] + spent["cold"])
        kind = lacking[0] if over else "cold" if cold and spent["cold"] < share else "hot"
        start_ns = device.now_ns()
        _round(cold if kind == "cold" else hot, device=device, read_ns=read_ns, number=rounds[kind])
        spent[kind] += device.now_ns() - start_ns
        rounds[kind] += 1
        if over:  # only the fewest rounds are still made: do they suffice?
            _keep_enough(_flat(cold if kind == "cold" else hot), more=_LEAST_ROUNDS - rounds[kind])
        if sum(rounds.values()) % 8 == 0 and until_ns > begun_ns:
            frac = min(1.0, (device.now_ns() - begun_ns) / (until_ns - begun_ns))
            progress(Progress(stage="hot and cold" if cold else "hot", frac=frac))
    _keep_enough(_flat([*hot, *cold]))


def _round(sides: Sequence[_Sides], *, device: Device, read_ns: int, number: int) -> None:
    """One block of each side, in one of four orders by the number of the round.

    The pairs forwards or backwards, and the sides of each either way: drift, and what a block finds behind that of
    another stage, then fall on both sides of a pair alike.
    """
    for side in _flat(sides, backwards=number % 4 >= 2, flipped=number % 2 == 1):
        with side.timed.context():
            if side.leads:
                side.loop(1)
            block = run_block(partial(side.loop, side.turns), device=device, calls=1)
        ns = (block.issue_ns - read_ns) / (side.turns * side.places)
        side.samples.append(ns if block.switches == 0 else float("nan"))
        if block.switches:
            side.disturbed.append(ns)


def _keep_enough(sides: Sequence[_Side], *, more: int = 0) -> None:
    """A side of which nearly every block was preempted keeps none: no number is better than a wrong one.

    ``more`` rounds are still to come, and each may have a clean block.
    """
    for side in sides:
        if side.clean + more < _MIN_CLEAN:
            took = [*side.disturbed, *(value for value in side.samples if value == value)]
            long = side.about_ns >= _ALONE_NS
            raise CannotTell(
                f"Only {side.clean} of {len(side.samples)} blocks ran without being preempted, where {_MIN_CLEAN} are "
                f"needed: a call took {format_range_ns(min(took), max(took))}, what others took of it included.",
                hint="Other processes hold the cores: try again when the machine is quieter"
                + (", or take a smaller shape: so long a call is seldom left alone." if long else "."),
            )
