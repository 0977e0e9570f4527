"""With which arguments can an operator be called? Made up from its schema, and tried in a child process first.

The names of arguments say much (``dim``, ``weight``, ``kernel_size``); where they do not, several values are tried,
over tensors of several shapes and dtypes. A combination may kill the process (backward kernels, statistics that are
missing), so that they are tried in a forked child, which reports the first that works.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from referee.anatomy.children import Report, run_child
from referee.anatomy.operator import Argument, Operator
from referee.anatomy.refusals import first_sentence, missing
from referee.anatomy.values import (
    CLASS_LOSSES,
    DTYPES,
    ENUMERATED,
    FLOATS,
    INDEX_NAMES,
    INT_LISTS,
    INTS,
    MASK_NAMES,
    SHAPES,
    STRINGS,
    TRAINING_NAMES,
)
from referee.device.host import load_torch
from referee.errors import CannotTell, OptionError, RefereeError

MOST_TRIES = 160

_LIMIT_S = 5
_MOST_KILLED = 3


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Positional and keyword arguments in the order of the schema, without trailing defaults."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tensors(self) -> tuple[Any, ...]:
        """The tensors among them, those in lists included."""
        return tuple(_tensors(self.args)) + tuple(_tensors(tuple(self.kwargs.values())))


def _tensors(values: Sequence[Any]) -> Iterator[Any]:
    torch = load_torch()
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the user fixed: shapes of the tensors in order (one for all if only one is given), dtype, device."""

    shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str | None = None
    device: str = "cpu"


def make_arguments(operator: Operator, wish: Wish | None = None) -> Arguments:
    """Arguments with which ``operator`` can be called, tried in a child first.

    Raises :class:`~referee.errors.OptionError` where the user's shapes do not fit, and
    :class:`~referee.errors.CannotTell` where no combination works, with the last thing torch said.
    """
    wish = wish or Wish()
    candidates = list(_candidates(operator, wish))
    # Tried on the CPU whatever the device: a process that uses an accelerator cannot be forked.
    trial = try_in_child(operator, [replace(candidate, device="cpu") for candidate in candidates])
    if trial.works is None:
        words = trial.words or "torch gave no reason"
        if wish.shapes or wish.dtype:
            raise OptionError(f"{operator.dotted} cannot be called with that: {words}.")
        refused = f"No arguments were found with which {operator.dotted} can be called: {words}."
        raise CannotTell(refused, hint=missing(operator))
    return build(operator, candidates[trial.works])


@dataclass(frozen=True)
class Candidate:
    """One combination to try: the shapes of the tensors, their dtype, and which of the further values to take."""

    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    turn: int
    device: str
    sized: bool = False
    """Whether the user gave the shape of what an operator without tensors makes."""


def _candidates(operator: Operator, wish: Wish) -> Iterator[Candidate]:
    shapes = [wish.shapes] if wish.shapes else [(shape,) for shape in SHAPES]
    dtypes = [wish.dtype] if wish.dtype else DTYPES
    combinations = [
        (turn + 2 * dtypes_index + shape_index, shape, dtype, turn)
        for turn in range(6)
        for dtypes_index, dtype in enumerate(dtypes)
        for shape_index, shape in enumerate(shapes)
    ]
    sized = bool(wish.shapes) and not any("Tensor" in argument.kind for argument in operator.arguments)
    # Diagonally, so that the likely ones of each kind come first.
    for _, shape, dtype, turn in sorted(combinations, key=lambda item: item[0])[:MOST_TRIES]:
        yield Candidate(shape, dtype, turn, wish.device, sized)


def build(operator: Operator, candidate: Candidate) -> Arguments:
    """The arguments that ``candidate`` stands for; the same ones each time. Raises what torch raises."""
    maker = _Maker(candidate, operator.base)
    values: list[tuple[Argument, Any]] = [(argument, maker.value(argument)) for argument in operator.arguments]
    positional = [(argument, value) for argument, value in values if not argument.keyword]
    while positional and _is_default(*positional[-1]):
        positional.pop()
    return Arguments(
        args=tuple(value for _, value in positional),
        kwargs={a.name: value for a, value in values if a.keyword and not _is_default(a, value)},
    )


def _is_default(argument: Argument, value: object) -> bool:
    return argument.has_default and type(value) is type(argument.default) and bool(value == argument.default)


class _Maker:
    """Makes the values of one candidate."""

    def __init__(self, candidate: Candidate, base: str) -> None:
        self._torch = load_torch()
        self._candidate, self._base = candidate, base
        self._made = 0

    def value(self, argument: Argument) -> Any:
        """A value for one argument: the default where there is one, ``None`` for what is optional, in early turns."""
        turn = self._candidate.turn
        wanted = turn >= 3 and argument.default is None and argument.kind in ("number", "Tensor", "int", "SymInt")
        wanted = wanted and argument.name not in ENUMERATED
        if argument.has_default and not wanted:
            return argument.default
        if argument.optional and turn < 3:
            return None
        return self._make(argument, turn)

    def _make(self, argument: Argument, turn: int) -> Any:
        kind, name = argument.kind, argument.name
        if kind == "Tensor":
            return self.tensor(name)
        if kind.startswith("List[") and "Tensor" in kind:
            return [self.tensor(name), self.tensor(name)]
        if name == "dtype":
            return self._dtype(turn)
        if kind in ("int", "SymInt"):
            return _turn(INTS.get(name, (1, 0, 2)), turn)
        if kind in ("List[int]", "List[SymInt]"):
            return list(self._int_list(name, turn))
        if kind == "float":
            return FLOATS.get(name, 0.5)
        if kind == "number":
            return _turn((2, 0.5, 1), turn)
        if kind == "bool":
            return (turn % 2 == 1) != (name in TRAINING_NAMES)
        if kind == "str":
            return _turn(STRINGS.get(name, ("none", "mean", "sum")), turn)
        return self._special(argument, turn)

    def _dtype(self, turn: int) -> Any:
        """A dtype to convert to: floating, and another than that of the tensors: there is work then, and a gradient."""
        torch = self._torch
        if "quantize" in self._base:
            return torch.quint8
        return _turn((torch.float64, torch.float32), turn + (self._candidate.dtype == "float64"))

    def _special(self, argument: Argument, turn: int) -> Any:
        torch, kind = self._torch, argument.kind
        made: dict[str, Any] = {
            "ScalarType": torch.float32,
            "Layout": torch.strided,
            "Device": torch.device(self._candidate.device),
            "MemoryFormat": torch.contiguous_format,
            "Generator": None,
            "List[number]": [1.0, 2.0],
            "List[float]": [1.0, 1.0],
            "List[bool]": [[True], [True, True], [True, True, True]][turn % 3],
            "complex": 1 + 1j,
        }
        if kind not in made:
            raise RefereeError(f"a {kind} cannot be made up")
        return made[kind]

    def _int_list(self, name: str, turn: int) -> Sequence[int]:
        shape = self._candidate.shapes[0]
        if name in ("size", "sizes", "input_size", "input_sizes", "self_size", "shape"):
            other = turn and not self._candidate.sized
            return [shape, [-1], [2, 2], [8]][turn % 4] if other else shape
        if name == "dims" and turn == 0:
            return list(range(len(shape)))[::-1]
        if name == "repeats":
            return [1] * max(1, len(shape))
        values: Sequence[int] = _turn(INT_LISTS.get(name, ([1], [2, 2], shape, [0])), turn)
        return values

    def tensor(self, name: str) -> Any:
        """A tensor; values between a quarter and one, which logarithms, divisions and probabilities all take."""
        torch, candidate = self._torch, self._candidate
        shape = candidate.shapes[min(self._made, len(candidate.shapes) - 1)]
        if len(candidate.shapes) == 1:
            shape = self._shape_by_name(name, shape)
        classes = name == "target" and any(loss in self._base for loss in CLASS_LOSSES)
        if classes and len(candidate.shapes) == 1 and candidate.turn % 2 == 0:
            shape = (*shape[:1], *shape[2:]) if len(shape) > 1 else ()
        self._made += 1
        generator = torch.Generator().manual_seed(self._made)
        if classes or name in INDEX_NAMES:
            return torch.zeros(shape, dtype=torch.int64, device=candidate.device)
        if name in MASK_NAMES:
            return (torch.rand(shape, generator=generator) > 0.5).to(candidate.device)
        values = torch.rand(shape, generator=generator) * 0.75 + 0.25
        if "cholesky" in self._base and len(shape) > 1 and shape[-1] == shape[-2]:
            values = values + shape[-1] * torch.eye(shape[-1])  # the diagonal outweighs the rest: positive definite
        return values.to(getattr(torch, candidate.dtype)).to(candidate.device)

    def _shape_by_name(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Weights and biases by what kind of input there is and by the turn."""
        turn = self._candidate.turn
        if name == "weight" and len(shape) >= 3:
            channels = shape[1]
            return [(channels, channels, *([2] * (len(shape) - 2))), (channels,), shape[-1:]][turn % 3]
        if name in ("bias", "running_mean", "running_var") and len(shape) >= 2:
            return (shape[1],) if turn % 3 < 2 else shape[-1:]
        if name in ("vec", "vec1", "vec2") or (name in ("weight", "bias") and turn == 3):
            return shape[-1:]
        if name == "repeats":
            return ()
        if name == "grid" and len(shape) > 3:
            return (*shape[:1], *shape[2:], len(shape) - 2)
        return shape


def _turn(values: Sequence[Any], turn: int) -> Any:
    return values[turn % len(values)]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Which candidate works, or the last reason; ``killed`` counts those that killed the child."""

    works: int | None
    words: str = ""
    killed: int = 0


def try_in_child(operator: Operator, candidates: Sequence[Candidate]) -> Trial:
    """Which of the candidates can be called? In a forked child, started again behind one that kills it."""
    first, killed, words, first_words = 0, 0, "", ""
    while first < len(candidates) and killed < _MOST_KILLED:
        reached = first
        child, reports = run_child(partial(_try_all, operator, candidates, first), limit_s=_LIMIT_S)
        for body in reports:
            kind, number, words_now = body[:1], int.from_bytes(body[1:5], "little"), body[5:].decode(errors="replace")
            if kind == b"w":
                reports.close()
                return Trial(works=number, killed=killed)
            reached, words = number, words_now or words
            first_words = first_words or words_now
        if not child.signal and not child.too_long:
            break
        killed += 1
        words = f"it took more than {_LIMIT_S} s" if child.too_long else f"it ended the process: {_named(child.signal)}"
        first = reached + 1
    # The first combination is the likeliest, and what was said of it says most; what killed the process says more.
    return Trial(works=None, words=words if killed else first_words, killed=killed)


def _named(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _try_all(operator: Operator, candidates: Sequence[Candidate], first: int, report: Report) -> None:
    """In the child: say which is tried, call it twice, say what came of it."""
    call = operator.callable
    for number in range(first, len(candidates)):
        at = number.to_bytes(4, "little")
        report(b"t" + at)
        try:
            arguments = build(operator, candidates[number])
            call(*arguments.args, **arguments.kwargs)
            call(*arguments.args, **arguments.kwargs)
        except Exception as error:  # noqa: BLE001 - whatever an operator raises is its refusal
            report(b"e" + at + first_sentence(str(error)).encode())
            continue
        report(b"w" + at)
        return
