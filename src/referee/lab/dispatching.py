"""By what way does a call reach its kernel? The dispatcher's order, what hooks into it, and what one dispatch costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from referee.anatomy.operator import find_operator
from referee.anatomy.path import keys_of_call, predict
from referee.lab.claims.operators import DISPATCH_NS
from referee.lab.eager import redispatch
from referee.lab.laboratory import Laboratory, Part, Reading, counted, share, told
from referee.units import format_ns


def _path(lab: Laboratory) -> tuple[str, ...]:
    """The keys with a kernel that a matmul visits under autocast and autograd, in order."""
    torch = lab.operators
    x = torch.randn(4, 4, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        path = predict(find_operator("aten.mm"), keys_of_call((x, x)))
    return tuple(entry.key for entry in path if entry.visited)


def priority(lab: Laboratory) -> Reading:
    """E9. The order read off the dispatcher, and what modes that hook in below autocast are given."""
    torch = lab.operators
    keys = _path(lab)

    def place(start: str) -> int:
        return next((index for index, key in enumerate(keys) if key.startswith(start)), -1)

    autocast, autograd, backend = place("Autocast"), place("Autograd"), place("CPU")
    x = torch.randn(4, 4, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        heard = _heard_by_a_mode(lambda: torch.mm(x, x))
        fake = _fake_of(torch, x)
        subclass = _heard_by_a_subclass(torch, x)
        compiled = torch.compile(torch.mm, backend="aot_eager")(x, x).dtype
    found = share(
        {
            "autocast above autograd": 0 <= autocast < autograd,
            "autograd above CPU": 0 <= autograd < backend,
            "a dispatch mode is handed what autocast has cast": heard == {torch.bfloat16},
            "a FakeTensor is cast by autocast too": fake == torch.bfloat16,
            "a subclass is handed what autocast has cast": subclass == {torch.bfloat16},
            "functionalisation turns an in-place operator into one that is not": _functionalised(torch),
            "a compiled matmul is cast by autocast": compiled == torch.bfloat16,
            "the union of the arguments' key sets counts": _united(torch, x),
            "an excluded key is passed over": not _excluding_autograd(torch, x),
        }
    )
    note = (
        f"The path is {' → '.join(keys)}. A mode is a key that the thread includes; autocast's own is on every tensor, "
    )
    return replace(found, note=told(found.note, f"{note}and excluded until its context lets it through."))


def _united(torch: Any, x: Any) -> bool:
    """An inference tensor has no autograd key: with ``x``, in either place, autograd is visited, alone it is not."""
    with torch.inference_mode():
        bare = torch.ones(4, 4)
    mixed = [torch.add(bare, x).requires_grad, torch.add(x, bare).requires_grad]
    return all(mixed) and not torch.add(bare, bare).requires_grad


def _excluding_autograd(torch: Any, x: Any) -> bool:
    """Whether a tape is built where this thread excludes autograd's keys."""
    with torch._C._AutoDispatchBelowAutograd():
        return bool(torch.mm(x, x).requires_grad)


def _heard_by_a_mode(step: Callable[[], object]) -> set[Any]:
    """The dtypes in which a dispatch mode, which stands where subclasses do, is handed a matmul's inputs."""
    from torch.utils._python_dispatch import TorchDispatchMode

    heard: set[Any] = set()

    class Listening(TorchDispatchMode):  # type: ignore[misc]  # torch is not followed
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func._schema.name == "aten::mm":
                heard.update(tensor.dtype for tensor in args)
            return func(*args, **(kwargs or {}))

    with Listening():
        step()
    return heard


def _heard_by_a_subclass(torch: Any, x: Any) -> set[Any]:
    """The dtypes in which a matmul's inputs reach a tensor subclass, which passes on what it holds."""
    heard: set[Any] = set()

    class Heard(torch.Tensor):  # type: ignore[misc]  # torch is not followed
        inner: Any

        @staticmethod
        def __new__(cls, inner: Any) -> Any:
            made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
            made.inner = inner
            return made

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            plain = [arg.inner if isinstance(arg, cls) else arg for arg in args]
            if func._schema.name == "aten::mm":
                heard.update(tensor.dtype for tensor in plain)
            return cls(func(*plain, **(kwargs or {})))

    own = Heard(x.detach())
    torch.mm(own, own)
    return heard


def _functionalised(torch: Any) -> bool:
    """Whether an in-place addition, functionalised, reaches what lies below as an addition that writes nowhere."""
    from torch.utils._python_dispatch import TorchDispatchMode

    names: list[str] = []

    class Listening(TorchDispatchMode):  # type: ignore[misc]  # torch is not followed
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(func._schema.name)
            return func(*args, **(kwargs or {}))

    def in_place(x: Any) -> Any:
        y = x.clone()
        y.add_(1)
        return y

    with Listening():
        torch.func.functionalize(in_place)(torch.ones(4))
    return "aten::add" in names and "aten::add_" not in names


def _fake_of(torch: Any, x: Any) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
        return torch.mm(fake, fake).dtype


def dispatches(lab: Laboratory) -> Reading:
    """E10. How many; and what one of them costs."""
    keys, cost = _path(lab), redispatch(lab)
    low, high = DISPATCH_NS
    note = f"The {format_ns(cost.value)} of one dispatch more are a whole further layer: the jump, autograd's kernel, "
    note += "which finds nothing to record, and the version counter of the result, which an inference tensor has not."
    found = counted(len(keys), path=", ".join(keys), one_ns=cost.value, one_low_ns=cost.low, one_high_ns=cost.high)
    part = Part(
        name="one dispatch",
        value=cost.value,
        low=cost.low,
        high=cost.high,
        claimed_low=low,
        claimed_high=high,
        below="today's dispatcher is faster than the course's",
        above="this core is slower, or shared with other work",
    )
    taken = f"kernels {found.taken}; one dispatch {cost.taken}"
    return replace(found, note=note, parts=(part,), taken=taken)
