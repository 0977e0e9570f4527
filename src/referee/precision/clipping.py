"""Are gradients clipped while they still carry the loss scale? By torch's functions, or by hand.

torch's own clipping is watched by name and held against the norm it saw. Clipping by hand is seen where it touches the
gradients: a clamp of memory that a gradient with a scale lies in, or a product with it after a norm, or the squares, of
such gradients were read. A product alone is no clipping: averaging over batches or ranks commutes with the scale, and a
division by the scale is unscaling. Nor is it a fault to clip at a limit that was multiplied by the scale.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from referee.device.host import load_torch
from referee.device.watching import tensors_in
from referee.precision.intercept import Intercepts
from referee.precision.seen import Held, Seen
from referee.records.finding import Scalar

_FUNCTIONS = ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_")

_NORMS = (
    ("linalg", "norm"),
    ("linalg", "vector_norm"),
    *(("", name) for name in ("norm", "_foreach_norm", "pow", "square")),
    *(("Tensor", name) for name in ("norm", "pow", "__pow__", "square")),
)
"""Where a norm, or the squares for one, may be read: the part of torch, and the name there."""

_CLAMPS = ("clamp", "clamp_", "clip", "clip_", "clamp_min", "clamp_min_", "clamp_max", "clamp_max_")
_BOUNDS = ("minimum", "maximum", "fmin", "fmax", "min", "max")
"""Of two tensors, the gradient may be either one."""
PRODUCTS = ("mul", "mul_", "div", "div_", "__mul__", "__rmul__", "__imul__", "__truediv__", "__itruediv__")
_FOREACH_CLAMPS = ("_foreach_clamp_min_", "_foreach_clamp_max_", "_foreach_minimum_", "_foreach_maximum_")
_FOREACH_PRODUCTS = ("_foreach_mul_", "_foreach_div_")

_LEAST_SCALE, _LEAST_LIMIT, _LIMIT_DIGITS = 16, 0.1, 2
"""A limit is taken to be multiplied by the scale where the scale is at least the first, and the limit over the scale at
least the second and of so few significant digits as people write: 1 over a power of two from 16 on has more."""

_HINT = "Call scaler.unscale_(optimizer) before clipping."


class ClipWatch:
    """Knows which gradients carry a scale, and what is done to them."""

    def __init__(self, seen: Seen, held: Mapping[int, Held]) -> None:
        self.torch = load_torch()
        self.seen, self.held = seen, held
        self.carrying: dict[int, weakref.ref[Any]] = {}
        """Parameters whose gradient carries a scale, by the address of that gradient."""
        self.gathered: dict[int, weakref.ref[Any]] = {}
        """Tensors, by address, that such gradients were put together in."""
        self.norm_read = False
        """Whether a norm of such gradients was read in this step."""
        self.limit_scaled: bool | None = None
        """Whether clipping by hand in this step keeps a limit that carries the scale; ``None`` before any."""
        self.norms: list[tuple[Any, float]] = []
        """Total norms taken of such gradients, with the scale they carried."""
        self.inside = 0
        """How many of torch's own functions are running: what they do is theirs."""
        self.clipped_scale: float | None = None

    def install(self, on: Intercepts) -> None:
        """Put the interceptions in place."""
        torch = self.torch
        for name in _FUNCTIONS:
            if hasattr(torch.nn.utils, name):
                on.wrap(
                    torch.nn.utils,
                    name,
                    before=self.before_clip,
                    after=self.after_clip,
                    failed=self.failed,
                    given=_readable,
                )
        if hasattr(torch.nn.utils, "get_total_norm"):
            on.wrap(torch.nn.utils, "get_total_norm", before=self.before_total, after=self.after_total)
        for part, name in _NORMS:
            on.wrap(getattr(torch, part) if part else torch, name, before=self.before_norm)
        on.wrap(torch, "cat", after=self.after_gathering)
        for names, owners, told in (
            (_CLAMPS, (torch.Tensor, torch), self.before_clamp),
            (_BOUNDS, (torch.Tensor, torch), self.before_bound),
            (PRODUCTS, (torch.Tensor, torch), self.before_product),
            (_FOREACH_CLAMPS, (torch,), self.before_clamp),
            (_FOREACH_PRODUCTS, (torch,), self.before_product),
        ):
            for owner in owners:
                for name in names:
                    if hasattr(owner, name):
                        on.wrap(owner, name, before=named(name, told))

    # Which gradients carry a scale ----------------------------------------------------------------------------------

    def gradients_made(self, parameters: Sequence[Any]) -> None:
        """A backward has left gradients at ``parameters``."""
        for parameter in parameters:
            held = self.held.get(id(parameter))
            if held is not None and held.scale not in (0.0, 1.0) and parameter.grad is not None:
                address = _address(parameter.grad)
                if address:
                    self.carrying[address] = weakref.ref(parameter)

    def forget(self, parameters: Sequence[Any]) -> None:
        """The gradients of ``parameters`` carry no scale any more."""
        if self.carrying:
            gone = {id(parameter) for parameter in parameters}
            left = {address: ref for address, ref in self.carrying.items() if id(ref()) not in gone}
            self.carrying.clear()
            self.carrying.update(left)

    def step_ended(self) -> None:
        """An optimizer has stepped: norms that were read belong to the step before."""
        self.norm_read, self.limit_scaled = False, None
        self.norms.clear()
        self.gathered.clear()

    def scale_in(self, value: object) -> float | None:
        """The scale that a gradient in ``value`` carries; ``None`` where none does."""
        return next((held.scale for _, _, held in self.carriers(value)), None)

    def carriers(self, value: object) -> Iterator[tuple[int, Any, Held]]:
        """The parameters whose gradients in ``value`` carry a scale, with the gradient's address and what is known."""
        if not self.carrying:
            return
        for tensor in tensors_in(value):
            address = _address(tensor)
            ref = self.carrying.get(address)
            parameter = None if ref is None else ref()
            # The memory may have become another tensor's meanwhile.
            if parameter is None or parameter.grad is None or _address(parameter.grad) != address:
                continue
            held = self.held.get(id(parameter))
            if held is not None and held.scale not in (0.0, 1.0):
                yield address, parameter, held

    # By hand --------------------------------------------------------------------------------------------------------

    def before_norm(self, owner: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """A norm is read."""
        if not self.carrying or self.inside:
            return
        read = (owner, args[:1], tuple(kwargs.values()))
        if self.scale_in(read) is not None or (self.gathered and any(map(self.is_gathered, tensors_in(read)))):
            self.norm_read = True

    def after_gathering(self, owner: Any, args: Sequence[Any], result: Any, kwargs: dict[str, Any]) -> None:
        """Gradients may have been put together in one tensor, of which a norm is read then."""
        if self.carrying and not self.inside and self.scale_in((args[:1], tuple(kwargs.values()))) is not None:
            self.gathered[_address(result)] = weakref.ref(result)

    def is_gathered(self, tensor: Any) -> bool:
        """Whether gradients with a scale were put together in ``tensor``."""
        ref = self.gathered.get(_address(tensor))
        return ref is not None and ref() is not None

    def before_clamp(self, name: str, tensors: object, factor: object) -> None:
        """Gradients are clamped."""
        scale = self.scale_in(tensors)
        if scale is not None and not self.inside and not _is_scaled(factor, scale):
            self.tell(scale, f"{name} cuts off what the scale has made of them")

    def before_bound(self, name: str, one: object, other: object) -> None:
        """The smaller or larger of two tensors is taken: of a gradient and what bounds it?"""
        if not self.carrying or not isinstance(other, self.torch.Tensor):
            return  # of one tensor alone the least or greatest is read
        carries = [self.scale_in(tensor) is not None for tensor in (one, other)]
        if carries == [True, False]:
            self.before_clamp(name, one, other)
        elif carries == [False, True]:
            self.before_clamp(name, other, one)

    def before_product(self, name: str, tensors: object, factor: object) -> None:
        """Gradients are multiplied: that unscales them, or clips them where their norm has been read before."""
        if not self.carrying or self.inside:
            return
        scale = self.scale_in(tensors)
        if scale is None:
            return
        if _divides_by(name, factor, scale):
            self.unscaled_by_hand(tensors)
        elif self.norm_read and not _is_average(factor) and not self.keeps_scaled_limit(factor, scale):
            self.tell(scale, f"{name} follows a norm that was {scale:g} times too large")

    def keeps_scaled_limit(self, factor: object, scale: float) -> bool:
        """Whether the norm times the factor is a limit that was multiplied by the scale, or nothing is cut at all.

        The first product of a step tells for all of it: what follows it meets gradients of which some are cut already.
        """
        if self.limit_scaled is None:
            value = number(factor)
            self.limit_scaled = value is not None and (value == 1 or _is_scaled(value * self.norm_now(), scale))
        return self.limit_scaled

    def norm_now(self) -> float:
        """The Euclidean norm of all gradients that carry a scale."""
        parameters = [parameter for ref in self.carrying.values() if (parameter := ref()) is not None]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        return math.sqrt(sum(float(self.torch.linalg.vector_norm(g.detach().float())) ** 2 for g in gradients))

    def unscaled_by_hand(self, tensors: object) -> None:
        """Gradients were divided by the scale in place: they carry none any more."""
        for address, _, held in list(self.carriers(tensors)):
            held.scale = 1.0
            held.unscaled += 1
            del self.carrying[address]

    def tell(self, scale: float, words: str, said: Mapping[str, Scalar] | None = None) -> None:
        """The finding."""
        self.seen.tell(
            "clip-before-unscale",
            f"Gradients are clipped while they still carry the loss scale of {scale:g}: {words}",
            hint=_HINT,
            also={"scale": scale, **(said or {})},
        )

    # By torch's functions -------------------------------------------------------------------------------------------

    def before_total(self, owner: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """A total norm is about to be taken."""
        given = args[0] if args else kwargs.get("tensors")
        self.clipped_scale = None if isinstance(given, Iterator) else self.scale_in(given)

    def after_total(self, owner: Any, args: Sequence[Any], result: Any) -> None:
        """It was taken: of gradients that carried a scale?"""
        scales = [held.scale for held in self.held.values() if held.scale not in (0.0, 1.0)]
        # An iterator is used up by now; the norms inside were seen to read such gradients or not.
        scale = self.clipped_scale or (scales[0] if self.norm_read and scales else None)
        if scale is not None:
            self.norms.append((result, scale))
        self.clipped_scale = None

    def before_clip(self, owner: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Do the gradients that are about to be clipped still carry a scale?"""
        self.inside += 1
        given = args[0] if args else kwargs.get("parameters")
        parameters = [given] if isinstance(given, self.torch.Tensor) else list(given or ())
        held = [self.held[id(p)] for p in parameters if id(p) in self.held]
        # A scale of 0 is announced as what it is.
        scale = next((one.scale for one in held if one.scale not in (0.0, 1.0)), None)
        total = kwargs.get("total_norm", args[2] if len(args) > 2 else None)
        if scale is not None and isinstance(total, self.torch.Tensor) and self._is_unscaled(total, scale):
            scale = None
        self.clipped_scale = scale

    def _is_unscaled(self, total: Any, scale: float) -> bool:
        """Whether a norm that is handed over was divided by the scale already: nearer to that than to what it is now.

        On a logarithmic scale, so that it matters little which kind of norm it is.
        """
        return float(total) < self.norm_now() / math.sqrt(scale)

    def failed(self, owner: Any) -> None:
        """A clipping function raised."""
        self.inside -= 1

    def after_clip(self, owner: Any, args: Sequence[Any], result: Any, kwargs: dict[str, Any]) -> None:
        """Gradients that carried the scale, or by a norm of such, were clipped: what did that do to the update?"""
        self.inside -= 1
        total = result if result is not None else kwargs.get("total_norm", args[2] if len(args) > 2 else None)
        taken = next((scale for norm, scale in self.norms if norm is total), None)
        scale = self.clipped_scale or taken
        if scale is None:
            return
        said: dict[str, Scalar] = {}
        words = "what is clipped is not what the optimizer gets"
        limit = args[1] if len(args) > 1 else kwargs.get("max_norm", kwargs.get("clip_value"))
        if self.clipped_scale is not None and _is_scaled(limit, scale):
            return
        seen = float(total) if isinstance(total, self.torch.Tensor) else math.inf
        if isinstance(limit, (int, float)) and limit > 0 and math.isfinite(seen):
            shrunk = max(1.0, seen / limit) / max(1.0, seen / scale / limit)
            said = {"norm_seen": seen, "norm": seen / scale, "max_norm": float(limit), "too_small_by": shrunk}
            words = f"clipping saw the norm {seen:.4g} instead of {seen / scale:.4g}"
            words += f", so the update is {shrunk:.4g} times too small" if shrunk > 1 else ""
        self.tell(scale, words, said)


def _readable(argument: Any) -> Any:
    """The parameters of a module come as an iterator, which can be read once: a list has the same."""
    if not isinstance(argument, Iterator):
        return argument
    # torch warns of an empty generator, which it is after this as well.
    return list(argument) or argument


def named(name: str, told: Callable[[str, object, object], None]) -> Callable[..., None]:
    """A callback that knows which function it belongs to, and finds tensor and factor in either form of call."""

    def before(owner: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        # Of a method the tensor is the owner, of a function it is the first argument.
        of_method = not isinstance(owner, type(math))
        tensors = owner if of_method else args[0] if args else kwargs.get("input")
        rest = args if of_method else args[1:]
        told(name.lstrip("_").removesuffix("__"), tensors, rest[0] if rest else next(iter(kwargs.values()), None))

    return before


def _is_average(factor: object) -> bool:
    """Whether a factor is a whole number or one over it, as in averages over batches or ranks."""
    if not isinstance(factor, (int, float)) or not factor:
        return False
    return float(factor).is_integer() or abs(1 / factor - round(1 / factor)) < 1e-9 * abs(1 / factor)


def number(value: object) -> float | None:
    """A number, or a tensor of one; ``None`` for anything else."""
    if isinstance(value, load_torch().Tensor):
        return float(value) if value.numel() == 1 and not value.is_complex() else None
    return float(value) if isinstance(value, (int, float)) else None


def _bound(limit: object) -> float | None:
    """The magnitude of a limit: a number, a tensor of one, or of many that are as large; ``None`` for anything else."""
    if isinstance(limit, load_torch().Tensor) and limit.numel() > 1 and not limit.is_complex():
        sizes = limit.detach().abs()
        return float(sizes.max()) if bool((sizes == sizes.max()).all()) else None
    return number(limit)


def _is_scaled(limit: object, scale: float) -> bool:
    """Whether a limit was multiplied by the scale, so that it cuts what the plain limit would after unscaling."""
    value = _bound(limit)
    if value is None or not math.isfinite(value) or scale < _LEAST_SCALE:
        return False
    plain = abs(value) / scale
    return plain >= _LEAST_LIMIT and len(Decimal(f"{plain:.5g}").normalize().as_tuple().digits) <= _LIMIT_DIGITS


def _divides_by(name: str, factor: object, scale: float) -> bool:
    """Whether the call divides in place by the scale, or multiplies by one over it."""
    if not (name.endswith("_") or name.startswith("i")):
        return False
    value = number(factor)
    if not value:
        return False
    return math.isclose(value if "div" in name else 1 / value, scale, rel_tol=1e-5)


def _address(tensor: Any) -> int:
    try:
        return int(tensor.data_ptr())
    except (RuntimeError, NotImplementedError):  # sparse and fake tensors have none
        return 0
