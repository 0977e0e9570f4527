"""Does the call really meet the kernels that were predicted? Recording kernels on the real operator, in a child.

Each kernel of the operator is taken from the dispatcher and put back behind one that notes its key and passes on, with
the key set it was given. Replacing is for good, so that it happens in a child process; nothing is timed there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from referee.anatomy.arguments import Arguments
from referee.anatomy.children import Report, run_child
from referee.anatomy.operator import Operator
from referee.anatomy.path import read_table
from referee.anatomy.scenario import UNSEEN, functional_twin, label, make_scenario
from referee.device.host import load_torch
from referee.records.anatomy import ModePath

_LIMIT_S = 60

_BACKENDS = ("CPU", "CUDA", "Meta")
"""Keys whose kernel ends a path."""

_SEEN_KEYS = (
    "CPU",
    "CUDA",
    "Python",
    "Functionalize",
    "ADInplaceOrView",
    "AutogradCPU",
    "AutogradCUDA",
    "AutocastCPU",
    "AutocastCUDA",
    "FuncTorchBatched",
    "FuncTorchVmapMode",
)
"""Where recording kernels are put, if the operator has one of its own or a fallback there."""


def predict_paths(operator: Operator, arguments: Arguments, modes: Sequence[str]) -> tuple[ModePath, ...]:
    """The predicted path in each mode; a mode that does not take this call says why."""
    found: list[ModePath] = []
    for mode in modes:
        try:
            scenario = make_scenario(operator, arguments, mode)
        except (RuntimeError, TypeError, AttributeError, IndexError, NotImplementedError) as error:
            found.append(ModePath(mode=mode, predicted=(), why_not=_line(error)))
            continue
        found.append(ModePath(mode=mode, predicted=scenario.predicted, open_ended=scenario.open_ended))
    return tuple(found)


def witness_paths(operator: Operator, arguments: Arguments, modes: Sequence[str]) -> tuple[ModePath, ...]:
    """The predicted path in each mode beside what recording kernels saw.

    Where the mode takes gradients, they are computed with and without the recording and compared.
    """
    paths = list(predict_paths(operator, arguments, modes))
    if not hasattr(load_torch().library, "get_kernel"):
        return tuple(replace(path, why_not="torch before 2.9 hands out no kernels") for path in paths)
    child, reports = run_child(lambda report: _watch(operator, arguments, modes, report), limit_s=_LIMIT_S)
    seen: dict[str, dict[str, Any]] = {}
    for body in reports:
        heard = json.loads(body)
        seen[heard["mode"]] = heard
    return tuple(_joined(path, seen.get(path.mode), child.signal) for path in paths)


def _joined(path: ModePath, heard: dict[str, Any] | None, killed: int) -> ModePath:
    if path.why_not:
        return path
    if heard is None:
        return replace(path, why_not=f"the witness ended with signal {killed}" if killed else "the witness was silent")
    if "why_not" in heard:
        return replace(path, why_not=heard["why_not"])
    return replace(path, witnessed=tuple(heard["seen"]), gradients_equal=heard["gradients_equal"])


def _watch(operator: Operator, arguments: Arguments, modes: Sequence[str], report: Report) -> None:
    """In the child: run every mode without recording, then with it."""
    try:
        _watch_all(operator, arguments, modes, report)
    except Exception as error:  # noqa: BLE001 - an operator that cannot be recorded says why, for every mode
        for mode in modes:
            report(json.dumps({"mode": mode, "why_not": _line(error)}).encode())


def _watch_all(operator: Operator, arguments: Arguments, modes: Sequence[str], report: Report) -> None:
    torch = load_torch()
    torch.vmap(torch.neg)(torch.rand(1, 1))  # the first one loads decompositions, in place of what was recorded
    plain = {mode: _gradients(operator, arguments, mode) for mode in modes}
    log = _Log()
    libraries = [_record_on(one, log, _SEEN_KEYS) for one in _family(operator)]
    # FakeTensor's own use of Meta does not go through the dispatcher's table, and a recording kernel would find itself.
    for mode in sorted(modes, key=lambda mode: mode != "fake"):
        if mode != "fake" and len(libraries) == len(_family(operator)):
            libraries += [_record_on(one, log, ("Meta",)) for one in _family(operator)]
        try:
            scenario = make_scenario(operator, arguments, mode)
            log.met.clear()
            with scenario.context():
                scenario.call()
            # Functionalisation alone leads to the twin: where a kernel calls it, that is work of its own.
            base = label(operator, "")
            seen = [met for met in log.met if mode == "functionalize" or met.startswith(base)]
        except Exception as error:  # noqa: BLE001 - a mode that refuses the call is an answer
            report(json.dumps({"mode": mode, "why_not": _line(error)}).encode())
            continue
        equal = _equal(plain[mode], _gradients(operator, arguments, mode))
        report(json.dumps({"mode": mode, "seen": seen, "gradients_equal": equal}).encode())
    del libraries


def _family(operator: Operator) -> list[Operator]:
    """The operator, and for one that writes its functional twin, which functionalisation calls."""
    twin = functional_twin(operator) if operator.in_place else None
    return [operator] if twin is None else [operator, twin]


class _Log:
    """What was met, in order. What a backend's kernel calls, the operator itself included, is work of its own."""

    def __init__(self) -> None:
        self.met: list[str] = []
        self.inside = 0

    @contextmanager
    def meeting(self, name: str, *, ends: bool) -> Iterator[None]:
        """A kernel runs; ``ends``: it is a backend's."""
        if not self.inside:
            self.met.append(name)
        self.inside += ends
        try:
            yield
        finally:
            self.inside -= ends


def _record_on(operator: Operator, log: _Log, keys: Sequence[str]) -> Any:
    torch = load_torch()
    namespace, _, base = operator.full.partition("::")
    library = torch.library.Library(namespace, "IMPL")
    table = read_table(operator)
    for key in keys:
        here = table.get(key)
        if here is None or here.kind in ("fallthrough", "none") or here.math or key in UNSEEN:
            continue
        kernel = torch.library.get_kernel(operator.full, key)
        library.impl(base, _recorder(operator, key, kernel, log), key, with_keyset=True, allow_override=True)
    if "CPU" in keys and any(here.math for here in table.values()):
        # A kernel of its own at the backend would change what autograd's key has: the composite one is recorded where
        # it was registered, for all keys at once, and the key set says which it was reached by.
        key = next(key for key, here in table.items() if here.math)
        kernel = torch.library.get_kernel(operator.full, key)
        recorder = _recorder(operator, "", kernel, log)
        library.impl(base, recorder, "CompositeImplicitAutograd", with_keyset=True, allow_override=True)
    return library


def _recorder(operator: Operator, key: str, kernel: Any, log: _Log) -> Any:
    torch = load_torch()
    own = torch._C.DispatchKeySet(torch._C._parse_dispatch_key(key or "CPU"))

    def record(*args: Any, **kwargs: Any) -> Any:
        given = args[0] if args and isinstance(args[0], torch._C.DispatchKeySet) else own
        name = label(operator, key or given.highestPriorityTypeId().name)
        with log.meeting(name, ends=key in _BACKENDS):
            # FakeTensor asks the kernel for Meta through Python's own dispatcher, which hands no key set on.
            if args and isinstance(args[0], torch._C.DispatchKeySet):
                return kernel.call_boxed(*args, **kwargs)
            return kernel.call_boxed(own, *args, **kwargs)

    return record


def _gradients(operator: Operator, arguments: Arguments, mode: str) -> list[Any] | None:
    """What a backward pass gives for the floating inputs, where the mode records one."""
    if mode not in ("grad", "autocast"):
        return None
    torch = load_torch()
    torch.manual_seed(0)  # what draws numbers draws the same ones both times; this is a child
    try:
        scenario = make_scenario(operator, _wanting(arguments), mode)
        with scenario.context():
            out = scenario.call()
        outputs = [o for o in (out if isinstance(out, (list, tuple)) else (out,)) if isinstance(o, torch.Tensor)]
        outputs = [o for o in outputs if o.grad_fn is not None]
        if not outputs:
            return None
        names = [o.grad_fn.name() for o in outputs]
        leaves = _leaves(outputs)
        grads = torch.autograd.grad([o.float().sum() for o in outputs], leaves, allow_unused=True)
        return [*names, *(None if grad is None else grad.detach().clone() for grad in grads)]
    except (RuntimeError, TypeError):
        return None


def _wanting(arguments: Arguments) -> Arguments:
    torch = load_torch()
    args = tuple(
        a.detach().clone().requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a
        for a in arguments.args
    )
    return Arguments(args=args, kwargs=arguments.kwargs)


def _leaves(outputs: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    stack, seen = [o.grad_fn for o in outputs], set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        stack += [child for child, _ in node.next_functions]
    return found


def _equal(first: list[Any] | None, second: list[Any] | None) -> bool | None:
    if first is None or second is None:
        return None
    torch = load_torch()

    def same(a: Any, b: Any) -> bool:
        if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
            return bool(a == b)
        return bool(a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True))

    return len(first) == len(second) and all(same(a, b) for a, b in zip(first, second, strict=True))


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__
