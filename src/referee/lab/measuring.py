"""The claims about measuring, as experiments on whatever devices are here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any, cast

import numpy as np

from referee.bench.warmup import first_call
from referee.device.protocol import Device, Settling
from referee.errors import CannotTell, EnvironmentLacks, ProvenanceError
from referee.lab.claims.measuring import COURSE_NS
from referee.lab.laboratory import ACTIVE, WAITED, Laboratory, Part, Reading, blocks_of, counted, share
from referee.precision.formats import BFLOAT16, FLOAT16, Magnitudes
from referee.records.measurement import Measurement
from referee.records.provenance import Provenance
from referee.stats.interval import median_interval
from referee.units import format_frac, format_ns

_SIDE = 256
_COVERED = 0.95
"""A clock that waited shows all of the device's own time; its marks may hold a little of the host's pace."""

_SPREAD = 0.5
"""What spreads thin is gone for the most part: at least half."""

_WIDTH, _ROWS = 512, 64
_FLOPS = 2 * _ROWS * _WIDTH * _WIDTH
_MOSTLY = 0.5

_LEAST_SKEW = 1.02
"""A step that recording lengthens by less is not skewed."""


def unwaited(lab: Laboratory, device: Device) -> Reading:
    """What a timer that does not wait would claim, over what is settled."""
    found = lab.time(_clock_step(lab, device), device=device)
    naive_ns = found.naive_ns
    if naive_ns is None or found.median_ns is None or found.ci_low_ns is None or found.ci_high_ns is None:
        raise CannotTell("The two clocks could not both be read.")
    return Reading(
        value=naive_ns / found.median_ns,
        low=naive_ns / found.ci_high_ns,
        high=naive_ns / found.ci_low_ns,
        note=f"A timer that does not wait shows {format_ns(naive_ns)}, one that does {format_ns(found.median_ns)}.",
        figures={
            "naive_ns": naive_ns,
            "settled_ns": found.median_ns,
            "settled_low_ns": found.ci_low_ns,
            "settled_high_ns": found.ci_high_ns,
            "device_ns": found.clocks.device_ns,
            "device": device.name,
        },
        taken=blocks_of(found),
    )


def _clock_step(lab: Laboratory, device: Device) -> Callable[[], object]:
    if lab.step is not None:
        return lab.step(device)
    x = lab.operators.randn(_SIDE, _SIDE).to(device.name)
    device.settle(x)
    return lambda: x @ x


def synchronous(lab: Laboratory) -> Reading:
    """M1."""
    return unwaited(lab, lab.device)


def asynchronous(lab: Laboratory) -> Reading:
    """M2, live. The share of the work that a timer without a wait misses."""
    device = lab.open("cuda")
    seen = unwaited(lab, device)
    own_ns = seen.figures["device_ns"]
    part = Part(name="the settled time, over the device's own", claimed_low=_COVERED, claimed_high=inf, unit="ratio")
    if isinstance(own_ns, float) and own_ns > 0:
        ends = (seen.figures[name] for name in ("settled_low_ns", "settled_ns", "settled_high_ns"))
        low, middle, high = (float(end or 0.0) / own_ns for end in ends)
        part = replace(part, value=middle, low=low, high=high)
    return replace(seen, value=1 - seen.value, low=1 - seen.high, high=1 - seen.low, parts=(part,))


def lazy(lab: Laboratory) -> Reading:
    """M3. On XLA where it is here, else on torch's own lazy tensors."""
    try:
        device, untested = lab.open("xla"), {}
    except EnvironmentLacks:
        device = lab.open("lazy")
        untested = {"XLA itself": "the number is from PyTorch's own lazy backend; make test-xla has the bridge"}
    found = unwaited(lab, device)
    return replace(found, note=f"Taken on the device {device.name}. {found.note}", untested=untested)


def amortised(lab: Laboratory) -> Reading:
    """M4. Both clocks of one measurement of a small operator."""
    x = lab.operators.randn(64)
    found = lab.time(lambda: lab.operators.add(x, x))
    single_ns = found.clocks.settled_per_call_ns
    if single_ns is None or found.median_ns is None or found.ci_low_ns is None or found.ci_high_ns is None:
        raise CannotTell("The two clocks could not both be read.")
    calls = found.provenance.value("method.calls_per_block")
    issuing_ns = found.clocks.enqueue_ns or found.median_ns
    at_once = lab.device.settling is Settling.SYNCHRONOUS
    saved_ns = single_ns - found.median_ns
    spread = Part(
        name="what this saves, over the time until a call returns",
        value=saved_ns / issuing_ns,
        low=(single_ns - found.ci_high_ns) / issuing_ns,
        high=(single_ns - found.ci_low_ns) / issuing_ns,
        claimed_low=_SPREAD,
        claimed_high=inf,
        unit="frac",
    )
    note = (
        f"One call with a clock of its own, and settled, takes {format_ns(single_ns)}; in blocks of n = {calls} calls "
        f"each takes {format_ns(found.median_ns)}. So {format_ns(saved_ns)} of the {format_ns(single_ns)} are saved, "
        f"which is {format_frac(saved_ns / single_ns)}. Until a call returns {format_ns(issuing_ns)} go by, in blocks: "
        f"Python, the dispatch{' and the add itself, which no clock here tells apart' if at_once else ''}; what is "
        f"saved is {format_frac(saved_ns / issuing_ns)} of that."
    )
    if saved_ns < _SPREAD * issuing_ns:
        wait = "the call that settles, which finds nothing to wait for here" if at_once else "the wait"
        note += f" Most of it is paid at every call all the same; what many calls share is the clock and {wait}."
    return Reading(
        value=single_ns / found.median_ns,
        low=single_ns / found.ci_high_ns,
        high=single_ns / found.ci_low_ns,
        note=note,
        figures={"per_call_ns": single_ns, "amortised_ns": found.median_ns, "n": calls},
        parts=(spread,),
        taken=blocks_of(found),
    )


def linear(lab: Laboratory) -> Reading:
    """M5."""
    torch = lab.operators
    layer, x = torch.nn.Linear(_WIDTH, _WIDTH), torch.randn(_ROWS, _WIDTH)
    least, one = torch.nn.Linear(1, 1), torch.randn(1, 1)
    found, issuing = timed(lab.time(lambda: layer(x))), timed(lab.time(lambda: least(one)))
    share = issuing.value / found.value
    note = (
        f"Its arithmetic, {_FLOPS / 1e6:.1f} million FLOP, comes to {_FLOPS / found.value:.3g} FLOP a nanosecond; "
        f"{format_ns(COURSE_NS)} would be {_FLOPS / COURSE_NS:.3g}. A layer of 1 × 1 takes {format_ns(issuing.value)}, "
        f"{format_frac(share)} of the {format_ns(found.value)}: it is the "
        f"{'issuing' if share > _MOSTLY else 'arithmetic'} that sets the time here."
    )
    return replace(found, note=note, figures={**found.figures, "one_by_one_ns": issuing.value})


def timed(found: Measurement) -> Reading:
    """A measurement's headline as a reading."""
    if found.median_ns is None or found.ci_low_ns is None or found.ci_high_ns is None:
        raise CannotTell("There is no number.")
    return Reading(
        value=found.median_ns,
        low=found.ci_low_ns,
        high=found.ci_high_ns,
        figures={"blocks": found.blocks},
        taken=blocks_of(found),
    )


def first_steps(lab: Laboratory) -> Reading:
    """M7. The first training step of a new model, with its optimizer's state still to be made."""
    torch = lab.operators
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(16, 64)

    def step() -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    first = first_call(step, device=lab.device)
    steady = timed(lab.time(step))
    recorded_ns = lab.recorded_steps_ns(step, lab.device)
    recorded = median_interval(np.array(recorded_ns, dtype=np.float64))
    skew = Part(
        name="a step while it is recorded, over a steady one",
        value=recorded.point / steady.value,
        low=recorded.low / steady.high,
        high=recorded.high / steady.low,
        claimed_low=_LEAST_SKEW,
        claimed_high=inf,
        unit="ratio",
    )
    numbers = lab.scheduled_steps(step)
    planned = tuple(range(WAITED, WAITED + ACTIVE))
    right = sum((number in numbers) == (number in planned) for number in range(WAITED + ACTIVE)) / (WAITED + ACTIVE)
    kept = Part.exact("steps that a schedule treats as planned", right, claimed=1.0, unit="frac")
    return Reading(
        value=first.ns / steady.value,
        low=first.ns / steady.high,
        high=first.ns / steady.low,
        note=f"The first step took {format_ns(first.ns)}, a steady one {format_ns(steady.value)}. While the profiler "
        f"records, a step takes {format_ns(recorded.point)}: {format_frac(recorded.point / steady.value - 1)} of a "
        f"step more, on every step without a schedule ({len(recorded_ns)} recorded steps). Of {WAITED + ACTIVE} steps, "
        f"numbered from 0, under a schedule that leaves out {WAITED} and records {ACTIVE}, it recorded "
        f"{', '.join(map(str, numbers)) or 'none'}.",
        figures={"first_ns": first.ns, "steady_ns": steady.value, "recorded_step_ns": recorded.point},
        parts=(skew, kept),
        taken=f"one first call; of steady ones {steady.taken}; {len(recorded_ns)} recorded ones",
    )


def autocast(lab: Laboratory) -> Reading:
    """M8. Each operator on inputs that would let it run in either dtype."""
    torch = lab.operators
    kind = lab.device.name.partition(":")[0]
    x, low = torch.randn(4, 4), torch.randn(4, 4).bfloat16()
    image, kernel = torch.randn(1, 2, 6, 6), torch.randn(2, 2, 3, 3)
    functional = torch.nn.functional
    with torch.autocast(kind, dtype=torch.bfloat16):
        matmul, convolution = torch.mm(x, x), torch.conv2d(image, kernel)
        kept = {
            "sum": torch.sum(low),
            "softmax": torch.softmax(low, 0),
            "layer_norm": functional.layer_norm(low, (4,)),
            "mse_loss": functional.mse_loss(low, low),
            "exp": torch.exp(low),
        }
    checks = {"mm is low": matmul.dtype == torch.bfloat16, "conv2d is low": convolution.dtype == torch.bfloat16}
    checks |= {f"{name} is float32": out.dtype == torch.float32 for name, out in kept.items()}
    against = [name for name, out in kept.items() if out.dtype != torch.float32]
    passed = [name.partition(" ")[0] for name, held in checks.items() if held]
    note = f"{len(passed)} of {len(checks)} do so: {', '.join(passed) or 'none'}."
    if against:
        note += f" These run in the dtype of their inputs here: {', '.join(against)}."
        note += _by_the_lists(lab, against)
    return replace(share(checks), note=note)


def _by_the_lists(lab: Laboratory, against: Sequence[str]) -> str:
    """What the dispatcher's own table says of these: which device's autocast has a kernel for them."""
    listed = {device: [name for name in against if lab.listed(name, device)] for device in ("CPU", "CUDA")}
    words = [f"the list for {device} has {', '.join(names) or 'none'} of them" for device, names in listed.items()]
    return f" By torch's own table {' and '.join(words)}."


def _tiny_gradients(lab: Laboratory) -> Any:
    """Gradients spread over what fp16 loses and what a scale of 2^16 brings back: 2^-40 to 2^-26."""
    torch = lab.operators
    generator = torch.Generator().manual_seed(0)
    exponents = torch.rand(10_000, generator=generator) * 14 - 40
    return torch.exp2(exponents)


_SCALE = 16


def saved_by_scaling(lab: Laboratory) -> Reading:
    """M9. Cast as they are, and cast after scaling."""
    gradients = _tiny_gradients(lab).numpy()
    magnitudes = Magnitudes()
    magnitudes.add(gradients)
    lost, still = (magnitudes.cast(FLOAT16, exponent=exponent).zeros for exponent in (0, _SCALE))
    if not lost:
        raise CannotTell("No gradient was lost.")
    of = "all" if lost == gradients.size else f"{lost:,}"
    left = f"{still:,}" if still else "none"
    note = f"Of {gradients.size:,} gradients {of} are lost as they are, and {left} once scaled."
    return replace(counted((lost - still) / lost, lost_at_1=lost, lost_scaled=still), note=note)


def lost_in_bf16(lab: Laboratory) -> Reading:
    """M10."""
    gradients = _tiny_gradients(lab).numpy()
    magnitudes = Magnitudes()
    magnitudes.add(gradients)
    lost = magnitudes.cast(BFLOAT16).zeros
    bf16, float32 = (lab.operators.finfo(dtype) for dtype in (lab.operators.bfloat16, lab.operators.float32))
    note = f"The least and the largest normal number of bf16 are {bf16.smallest_normal:.3g} and {bf16.max:.3g}, of "
    note += f"float32 {float32.smallest_normal:.3g} and {float32.max:.3g}."
    parts = (
        _exact("bf16's least normal number, over float32's", bf16.smallest_normal / float32.smallest_normal, 1.0, 1.0),
        _exact("bf16's largest number, over float32's", bf16.max / float32.max, 0.99, 1.0),
        _exact("bf16's step from 1 to the next number, over float32's", bf16.eps / float32.eps, 2.0, inf),
    )
    return replace(counted(lost / gradients.size, lost=lost), note=note, parts=parts)


def _exact(name: str, value: float, low: float, high: float) -> Part:
    return Part(name=name, value=value, low=value, high=value, claimed_low=low, claimed_high=high, unit="ratio")


def provenance(lab: Laboratory) -> Reading:
    """M11. A measurement made here, its provenance taken away, or one part of it."""
    found = lab.time(lambda: None)
    known = found.provenance
    whole = {name: getattr(known, name) for name in known.__dataclass_fields__}

    def without(part: str) -> Callable[[], object]:
        return lambda: Provenance(**{name: value for name, value in whole.items() if name != part})

    def instead(given: object) -> Callable[[], object]:
        fields = {name: getattr(found, name) for name in found.__dataclass_fields__}
        return lambda: Measurement(**{**fields, "provenance": cast(Any, given)})

    attempts = {
        "no provenance": instead(None),
        "an empty provenance": instead({}),
        "a word for provenance": instead("somewhere"),
        **{f"no {part}": without(part) for part in ("chip", "dtype", "shapes", "method")},
    }
    return share({name: _refused(attempt) for name, attempt in attempts.items()})


def _refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (ProvenanceError, TypeError):
        return True
    return False
