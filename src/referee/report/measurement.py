"""How long did it take, and may it be believed? One measurement as a document."""

from __future__ import annotations

import math

from referee.records.document import (
    Block,
    Column,
    Curve,
    Document,
    Fact,
    Facts,
    Heading,
    Headline,
    Plot,
    Table,
)
from referee.records.finding import fatal
from referee.records.measurement import Measurement
from referee.report.findings import alarm_blocks, finding_blocks
from referee.report.provenance import provenance_blocks
from referee.report.wording import CLOCKS, clock_name, context_lines, plural, sentence
from referee.units import (
    ENDLESS_NS,
    NS_PER_S,
    format_bytes,
    format_frac,
    format_ns,
    format_number,
    format_quantity,
    format_range_ns,
    format_rate,
    format_ratio,
)

_SAME = 0.05
"""A naive claim within this share of the headline is called about the same."""

_FOUR_DIGITS = 0.005
"""A median known better than this is shown with four digits."""

_DEVICE_LIMITS, _HOST_LIMITS = 0.5, 0.9
"""Enqueue below half of the amortised time is far below it; from nine tenths up it is about equal."""

_MOST_SAMPLES = 600
"""More points than a page shows apart."""

_FEW = 10
"""No more samples than this are labelled one by one."""

_WIDE = 4
"""Samples that spread over more than this factor are drawn on a logarithmic axis."""

Point = tuple[float, float]
"""The number of a block, and its time."""

_CLOCK_MEANINGS = {
    "settled_amortised": "n calls back to back, one settle at the end, divided by n",
    "settled_per_call": "settled after each call: what a latency-sensitive caller sees",
    "enqueue": "from an empty queue until the call returns, nothing awaited",
    "device": "duration on the device",
}


def compose_measurement(measurement: Measurement) -> Document:
    """The measurement as a document: the number first, then what it stands on."""
    return Document(
        title=measurement.name,
        blocks=(
            measurement_headline(measurement),
            *alarm_blocks(measurement.findings),
            *measurement_blocks(measurement),
            *finding_blocks(measurement.findings),
            *provenance_blocks(measurement.provenance),
        ),
    )


def measurement_headline(measurement: Measurement) -> Headline:
    """The number with its interval and the naive claim; where there is no number, the reason."""
    context = context_lines(measurement.provenance)
    if measurement.median_ns is None:
        reasons = " ".join(sentence(f.message) for f in fatal(measurement.findings))
        return Headline(
            figure="No headline number",
            sentence=f"{reasons or 'No block could be used.'} {naive_sentence(measurement)}",
            context=context,
            tone="bad",
        )
    return Headline(
        figure=f"{median_words(measurement)} per call",
        sentence=f"Median of {plural(measurement.n, 'sample')}; {interval_words(measurement)}. "
        f"{naive_sentence(measurement)}",
        context=context,
        tone="warn" if any(f.severity == "warning" for f in measurement.findings) else "good",
    )


def median_words(measurement: Measurement) -> str:
    """The median with as many digits as its interval bears."""
    median, low, high = measurement.median_ns, measurement.ci_low_ns, measurement.ci_high_ns
    if not median or low is None or high is None:
        return format_ns(median)
    half_frac = (high - low) / 2 / median
    return format_ns(median, digits=3 if half_frac > _FOUR_DIGITS else 4)


def interval_words(measurement: Measurement) -> str:
    """``95 % interval 12.3 to 12.6 ms (±1.2 %)``."""
    low, high, median = measurement.ci_low_ns, measurement.ci_high_ns, measurement.median_ns
    if low is None or high is None:
        return "no interval"
    spread = f" (±{format_frac((high - low) / 2 / median)})" if median else ""
    return f"{format_frac(measurement.ci_level, digits=0)} interval {format_range_ns(low, high)}{spread}"


def naive_sentence(measurement: Measurement) -> str:
    """What a timer that does not wait would have claimed."""
    naive, median = measurement.naive_ns, measurement.median_ns
    if naive is None:
        return "What a timer that does not wait would have claimed was not taken."
    claim = f"A timer that does not wait would have claimed {format_ns(naive)}"
    if not median or naive <= 0:
        return f"{claim}."
    ratio = naive / median
    if abs(ratio - 1) <= _SAME:
        if str(measurement.provenance.value("method.settle")).startswith("nothing to wait for"):
            return f"{claim}, the same by construction: here a call returns when its work is done."
        return f"{claim}, about the same."
    return f"{claim}: {format_ratio(1 / ratio)} too fast." if ratio < 1 else f"{claim}: {format_ratio(ratio)} too slow."


def measurement_blocks(measurement: Measurement) -> tuple[Block, ...]:
    """The clocks, the statistics, the warm-up and the samples."""
    return (
        Heading(text="Clocks"),
        _clock_table(measurement),
        *_clock_rule(measurement),
        *_stages(measurement),
        Heading(text="Statistics and warm-up"),
        Facts(facts=(*_statistics(measurement), *_warmup(measurement))),
        *_samples(measurement),
    )


def _clock_table(measurement: Measurement) -> Table:
    clocks = measurement.clocks
    headline = str(measurement.provenance.value("method.clock"))
    values = {
        "settled_amortised": clocks.settled_amortised_ns,
        "settled_per_call": clocks.settled_per_call_ns,
        "enqueue": clocks.enqueue_ns,
        "device": clocks.device_ns,
    }
    missing = "none here" if measurement.median_ns is not None else "no number"
    rows = [
        (
            CLOCKS[name],
            missing if value is None else format_ns(value),
            "headline" if name == headline and value is not None else _against(value, measurement.median_ns),
            _CLOCK_MEANINGS[name],
        )
        for name, value in values.items()
    ]
    naive = measurement.naive_ns
    rows.append(
        (
            "naive timer",
            "not taken" if naive is None else format_ns(naive),
            _against(naive, measurement.median_ns),
            "the clock read without waiting: not a measurement",
        )
    )
    return Table(
        columns=(
            Column(title="Clock"),
            Column(title="Per call", align="right"),
            Column(title="To headline", align="right", priority=2),
            Column(title="What it measures", priority=3, fit="wrap"),
        ),
        rows=tuple(rows),
    )


def _against(value: float | None, headline: float | None) -> str:
    return format_ratio(value / headline) if value is not None and headline else "–"


def _clock_rule(measurement: Measurement) -> tuple[Block, ...]:
    """Which side is the limit, as far as the enqueue clock tells; nothing where there is no such clock."""
    enqueue, amortised = measurement.clocks.enqueue_ns, measurement.clocks.settled_amortised_ns
    if enqueue is None or not amortised:
        return ()
    share = enqueue / amortised
    if any(f.code == "enqueue-blocked" for f in measurement.findings):
        so, value = "the step waits inside or fills the launch queue, so no rule follows", "enqueueing was blocked"
    elif share < _DEVICE_LIMITS:
        so, value = "far below: the device is the limit", f"{format_frac(share)} of amortised"
    elif share >= _HOST_LIMITS:
        so, value = "about equal: the host is the limit", f"{format_frac(share)} of amortised"
    else:
        so, value = "between far below and about equal: neither side alone", f"{format_frac(share)} of amortised"
    return (Facts(facts=(Fact(label="Enqueue", value=value, note=so),)),)


_STAGE_WORDS = {
    "tracing_ns": "Recording",
    "compile_ns": "Compiling",
    "execute_ns": "Executing",
    "to_device_ns": "Transfer to the device",
    "from_device_ns": "Transfer from the device",
    "compiles": "Compilations",
    "executions": "Executions",
}


def _stages(measurement: Measurement) -> tuple[Block, ...]:
    """What the time of a call went into by the backend's own account, where it keeps one."""
    if not measurement.stages:
        return ()
    facts = (
        Fact(label=_STAGE_WORDS.get(name, name), value=format_quantity(value, "ns" if name.endswith("_ns") else ""))
        for name, value in measurement.stages.items()
    )
    return Heading(text="A call by the backend's own account", level=3), Facts(facts=tuple(facts))


def _statistics(measurement: Measurement) -> tuple[Fact, ...]:
    dirty = sum(not clean for clean in measurement.clean)
    preempted = f"{plural(dirty, 'block')} preempted or just behind one" if dirty else "none preempted"
    known = measurement.median_ns is not None
    spread = (
        Fact(label="Median", value=median_words(measurement), note=interval_words(measurement)),
        Fact(label="Spread (IQR)", value=format_ns(measurement.iqr_ns)),
        Fact(
            label="Floor",
            value=format_ns(measurement.floor_ns),
            note="lower quartile of the clean blocks; never the headline",
        ),
        Fact(label="95th percentile", value=format_ns(measurement.p95_ns), note=_sample_words(measurement)),
    )
    return (
        *(spread if known else ()),
        Fact(
            label="Samples",
            value=f"{measurement.n:,}",
            note=f"worth {format_number(measurement.n_eff)} independent ones; "
            f"{plural(measurement.blocks, 'block')} timed, {preempted}",
        ),
        *_core_clock(measurement),
        *_memory(measurement),
        *_arithmetic(measurement),
        Fact(label="Stopped because", value=measurement.stop_reason),
        Fact(label="Clock", value=clock_name(measurement.provenance)),
    )


def _core_clock(measurement: Measurement) -> tuple[Fact, ...]:
    """How fast the core ran meanwhile, where that was read."""
    clock = measurement.core_clock
    if clock is None or clock.low_ns <= 0:
        return ()
    moved = format_frac(clock.high_ns / clock.low_ns - 1)
    chain, floor = format_ns(clock.chain_ns), format_ns(clock.floor_ns)
    note = f"a fixed chain of instructions took {chain}; at that clock the floor is {floor}"
    return (Fact(label="Core clock", value=f"within {moved}", note=note),)


def _sample_words(measurement: Measurement) -> str:
    """What the percentiles are of: calls, or the means of so many."""
    calls = measurement.provenance.value("method.calls_per_block")
    return f"of blocks, each the mean of {calls:,} calls" if isinstance(calls, int) and calls > 1 else "of single calls"


def _memory(measurement: Measurement) -> tuple[Fact, ...]:
    """What one call asked of memory, where it was read."""
    if measurement.peak_bytes is None and measurement.allocations is None:
        return ()
    peak = "not read" if measurement.peak_bytes is None else format_bytes(measurement.peak_bytes)
    requests = "" if measurement.allocations is None else plural(measurement.allocations, "request")
    return (Fact(label="Memory of a call", value=f"peak {peak}", note=requests),)


def _arithmetic(measurement: Measurement) -> tuple[Fact, ...]:
    """How much arithmetic a call does, and at what rate, where it was counted."""
    if not measurement.flop or not measurement.median_ns:
        return ()
    rate = format_rate(measurement.flop * NS_PER_S / measurement.median_ns, "FLOP")
    amount = format_rate(measurement.flop, "FLOP").removesuffix("/s")
    note = f"{rate}; matrix products, convolutions and attention alone"
    return (Fact(label="Arithmetic of a call", value=amount, note=note),)


def _warmup(measurement: Measurement) -> tuple[Fact, ...]:
    warmup = measurement.warmup
    facts = [
        Fact(
            label="Warm-up",
            value=f"{plural(warmup.calls, 'call')}, {format_ns(warmup.total_ns)}",
            note="became steady" if warmup.steady else "did not become steady",
            tone="plain" if warmup.steady else "warn",
        ),
        Fact(label="First call", value=format_ns(warmup.first_call_ns), note=_first_against(measurement)),
    ]
    if warmup.compiles:
        facts.append(Fact(label="Compiled", value=plural(warmup.compiles, "time"), note=format_ns(warmup.compile_ns)))
    return tuple(facts)


def _first_against(measurement: Measurement) -> str:
    if not measurement.median_ns:
        return ""
    return f"{format_ratio(measurement.warmup.first_call_ns / measurement.median_ns)} the headline"


def _samples(measurement: Measurement) -> tuple[Block, ...]:
    """The samples in the order in which they were taken; drift and bursts show here and in no statistic."""
    numbered = [(float(k), y) for k, y in enumerate(measurement.samples_ns, 1) if 0 < y < ENDLESS_NS]
    if len(numbered) < 3:
        return ()
    clean = measurement.clean if len(measurement.clean) == len(measurement.samples_ns) else ()
    groups: dict[str, list[Point]] = {}
    for x, y in numbered:
        name = ("clean block" if clean[int(x) - 1] else "preempted, or just behind one") if clean else "block"
        groups.setdefault(name, []).append((x, y))
    curves = []
    for name, points in groups.items():
        shown = thinned(points)
        label = name if len(shown) == len(points) else f"{name} ({len(shown):,} of {len(points):,} shown)"
        curves.append(Curve(label=label, xs=tuple(x for x, _ in shown), ys=tuple(y for _, y in shown), style="points"))
    ys = [y for _, y in numbered]
    return (
        Plot(
            curves=tuple(curves),
            x_label="block, in the order taken",
            y_label="time per call",
            log_x=False,
            x_ticks=tuple(x for x, _ in numbered) if len(numbered) <= _FEW else (),
            log_y=max(ys) > _WIDE * min(ys),
            height="short",
        ),
    )


def thinned(points: list[Point]) -> list[Point]:
    """At most :data:`_MOST_SAMPLES` points: of each run of neighbours the lowest, the middle one and the highest.

    Bursts survive, which they would not if every n-th point were taken.
    """
    if len(points) <= _MOST_SAMPLES:
        return points
    size = math.ceil(len(points) / (_MOST_SAMPLES // 3))
    kept: list[Point] = []
    for start in range(0, len(points), size):
        by_time = sorted(points[start : start + size], key=lambda point: point[1])
        kept += sorted({by_time[0], by_time[len(by_time) // 2], by_time[-1]})
    return kept
