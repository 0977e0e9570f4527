"""What did a forward pass leave behind for a backward pass? Nodes, edges, and what each node saved.

Read from the graph behind the outputs, whether or not a backward pass will ever run. Storage is counted once: a saved
view keeps its whole storage alive, and several saved tensors may lie in one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from referee.device.host import load_torch
from referee.device.settle import find_leaves
from referee.records.anatomy import SavedTensor, Tape, TapeNode

_COMPILED = "CompiledFunctionBackward"

_SHOWS_NOTHING = "Foreach"
"""How the names of those nodes begin for which torch generates no getters of what they save."""

_ELSEWHERE = "a hook keeps something else, to be turned back into the tensor by backward"

_UNREAD = [("saved", "torch shows nothing of what it saves")]

_MOST_NODES = 2_000
"""A tape longer than this is counted, and its first nodes are listed."""

OVERWRITTEN = "changed in place since, so that backward would fail"
"""What stands in the place of a saved tensor that was written to after it was saved."""

NO_OUTPUT = "no output of the step carries what operators recorded in it"
"""Why a tape that was recorded has no nodes: none of the outputs leads to them."""

OWN_OUTPUT = "its own output"
"""What stands behind the name of an attribute of ``ctx`` by which a graph holds itself."""


def read_tape(
    outputs: object, *, inputs: Sequence[Any] = (), parameters: Iterable[Any] = (), packed: Sequence[Any] = ()
) -> Tape:
    """The tape behind ``outputs``; ``inputs`` and ``parameters`` say whose memory a saved tensor may lie in.

    Leaves that want a gradient count as parameters where none of ``inputs`` is theirs. The outputs are not changed.
    ``packed`` are the tensors that hooks saw being saved: those that no node shows are put down to the one node that
    shows nothing, where there is one alone.
    """
    tensors: list[Any] = find_leaves(outputs, load_torch().Tensor)
    roots = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    if not roots:
        return _empty(tensors)
    order = _run_order(roots)
    hidden = [node for node in order if _shows_nothing(node)]
    found = {node: saved_by(node) for node in order}
    _add_kept_by_hooks(found)
    if packed and len(hidden) == 1:
        shown = [_address(tensor) for saved in found.values() for _, tensor in saved if not isinstance(tensor, str)]
        left = [tensor for tensor in packed if _address(tensor) not in shown]
        found[hidden[0]] = [(f"saved {number}", tensor) for number, tensor in enumerate(left)]
    return _build(order, found, _roles(order, inputs, parameters))


def read_tape_of_call(call: Callable[[], object], *, inputs: Sequence[Any] = ()) -> Tape:
    """The tape of one call made for it; where a node shows nothing of what it saves, of a second one under hooks."""
    tape = read_tape(call(), inputs=inputs)
    if not tape.unread_nodes:
        return tape
    packed: list[Any] = []

    def pack(tensor: Any) -> Any:
        packed.append(tensor)
        return tensor

    with load_torch().autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = call()
    return read_tape(outputs, inputs=inputs, packed=packed)


def read_dropped_tape(step: Callable[[], object], *, parameters: Iterable[Any] = ()) -> Tape | None:
    """What operators saved in one call of ``step`` none of whose outputs carries a graph; ``None`` where nothing was.

    A tape without nodes, which are gone by then or hang on what the step keeps: only what was saved is known.
    """
    torch = load_torch()
    saved: list[Any] = []

    def pack(tensor: Any) -> Any:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        step()
    if not saved:
        return None
    weights = {_storage(tensor) for tensor in parameters}
    # A product saves a view of its weight.
    owners = [tensor if tensor._base is None else tensor._base for tensor in saved]
    weights |= {_storage(owner) for owner in owners if owner.is_leaf and owner.requires_grad}
    by_storage = {_storage(tensor): tensor for tensor in saved}
    size = {storage: tensor.untyped_storage().nbytes() for storage, tensor in by_storage.items() if storage is not None}
    return Tape(
        nodes=(),
        edges=0,
        accumulators=0,
        saved_tensors=len(saved),
        saved_bytes=sum(size[storage] for storage in size if storage not in weights),
        parameter_bytes=sum(size[storage] for storage in size if storage in weights),
        naive_bytes=sum(tensor.numel() * tensor.element_size() for tensor in saved),
        why_empty=NO_OUTPUT,
    )


def _shows_nothing(node: Any) -> bool:
    return bool(node.name().startswith(_SHOWS_NOTHING))


def _address(tensor: Any) -> tuple[Any, ...]:
    """What two tensors have in common that show the same numbers of one storage."""
    where = (tensor.storage_offset(), tuple(tensor.stride())) if tensor.layout == load_torch().strided else ()
    return (_storage(tensor), tuple(tensor.shape), *where)


def _empty(tensors: Sequence[Any]) -> Tape:
    torch = load_torch()
    if any(tensor.is_inference() for tensor in tensors):
        why = "the outputs are inference tensors"
    elif not torch.is_grad_enabled():
        why = "no gradient is wanted here (no_grad)"
    elif any(tensor.requires_grad for tensor in tensors):
        why = "the outputs are leaves"
    else:
        why = "nothing that went in wants a gradient"
    return Tape(
        nodes=(),
        edges=0,
        accumulators=0,
        saved_tensors=0,
        saved_bytes=0,
        parameter_bytes=0,
        naive_bytes=0,
        why_empty=why if tensors else "there is no output tensor",
    )


def _children(node: Any) -> list[Any]:
    return [child for child, _ in node.next_functions if child is not None]


def _run_order(roots: Sequence[Any]) -> list[Any]:
    """The nodes in the order in which the engine would run them: those made last first, none before what feeds it."""
    waiting: dict[Any, int] = {}
    stack, seen = list(dict.fromkeys(roots)), set(roots)
    while stack:
        for child in _children(stack.pop()):
            waiting[child] = waiting.get(child, 0) + 1
            if child not in seen:
                seen.add(child)
                stack.append(child)
    ready = [(_priority(node), number, node) for number, node in enumerate(seen) if not waiting.get(node)]
    heapq.heapify(ready)
    order: list[Any] = []
    number = len(seen)
    while ready:
        node = heapq.heappop(ready)[2]
        order.append(node)
        for child in _children(node):
            waiting[child] -= 1
            if waiting[child] == 0:
                number += 1
                heapq.heappush(ready, (_priority(child), number, child))
    return order


def count_nodes(tensor: Any) -> int:
    """How many nodes are reachable from a tensor."""
    return 0 if tensor.grad_fn is None else len(_run_order([tensor.grad_fn]))


def _priority(node: Any) -> int:
    """The engine runs accumulation at once, and otherwise what was made last."""
    if _accumulates(node):
        return -(1 << 62)
    return -int(node._sequence_nr())


def _accumulates(node: Any) -> bool:
    return bool(node.name().endswith("AccumulateGrad"))


Role = Literal["activation", "parameter", "input"]


def _roles(order: Sequence[Any], inputs: Sequence[Any], parameters: Iterable[Any]) -> dict[Any, Role]:
    """By storage: whose memory it is. What nothing claims is an activation."""
    roles: dict[Any, Role] = {}
    for node in order:
        if _accumulates(node):
            roles.setdefault(_storage(node.variable), "parameter")
    for tensor in parameters:
        roles[_storage(tensor)] = "parameter"
    for tensor in inputs:
        roles[_storage(tensor)] = "input"
    roles.pop(None, None)
    return roles


def _storage(tensor: Any) -> Any:
    """What identifies the memory behind a tensor; ``None`` where it has none."""
    try:
        storage = tensor.untyped_storage()
        return (str(tensor.device), storage.data_ptr()) if storage.data_ptr() else None
    except (RuntimeError, NotImplementedError):  # sparse, opaque and wrapped tensors
        return None


_Saved: TypeAlias = list[tuple[str, Any]]
"""What a node saved, by name; words in place of a tensor that cannot be read."""


def _build(order: Sequence[Any], found: Mapping[Any, _Saved], roles: dict[Any, Role]) -> Tape:
    numbers = {node: number for number, node in enumerate(order)}
    counted: set[Any] = set()
    nodes: list[TapeNode] = []
    edges = 0
    for node in order:
        children = _children(node)
        edges += len(children)
        nodes.append(
            TapeNode(
                number=numbers[node],
                name=node.name().rpartition("::")[2],
                next=tuple(numbers[child] for child in children),
                saved=tuple(_saved(found[node], roles, counted)),
                variable=_variable(node),
            )
        )
    saved = [tensor for node in nodes for tensor in node.saved if tensor.dtype]
    return Tape(
        nodes=tuple(nodes[:_MOST_NODES]),
        edges=edges,
        accumulators=sum(bool(node.variable) for node in nodes),
        saved_tensors=len(saved),
        saved_bytes=sum(tensor.bytes for tensor in saved if tensor.role != "parameter"),
        parameter_bytes=sum(tensor.bytes for tensor in saved if tensor.role == "parameter"),
        naive_bytes=sum(tensor.view_bytes for tensor in saved),
        compiled_nodes=sum(node.name == _COMPILED for node in nodes),
        node_count=len(nodes),
        unread_nodes=sum(saved == _UNREAD for saved in found.values()),
    )


def _variable(node: Any) -> str:
    if not _accumulates(node):
        return ""
    shape = "×".join(map(str, node.variable.shape)) or "scalar"
    return f"leaf {shape}"


def _saved(found: _Saved, roles: dict[Any, Role], counted: set[Any]) -> Iterable[SavedTensor]:
    for name, tensor in found:
        if isinstance(tensor, str):
            yield SavedTensor(
                name=f"{name}: {tensor}", shape=(), dtype="", view_bytes=0, bytes=0, role="activation", version=None
            )
            continue
        storage = _storage(tensor)
        new = storage is not None and storage not in counted
        counted.add(storage)
        yield SavedTensor(
            name=name,
            shape=tuple(tensor.shape),
            dtype=str(tensor.dtype).removeprefix("torch."),
            view_bytes=tensor.numel() * tensor.element_size(),
            bytes=tensor.untyped_storage().nbytes() if new else 0,
            role=roles.get(storage, "activation"),
            version=None if tensor.is_inference() else tensor._version,
        )


def saved_by(node: Any) -> _Saved:
    """The tensors that a node saved, by name; the reason in their place where one can no longer be used."""
    torch = load_torch()
    if _shows_nothing(node):
        return list(_UNREAD)
    found: _Saved = []
    for attribute in dir(node):
        if not attribute.startswith("_saved_"):
            continue
        name = attribute.removeprefix("_saved_")
        packed = _packed(getattr(node, f"_raw{attribute}", ()))
        if packed is not None:
            found += [(name, one) for one in packed] or [(name, _ELSEWHERE)]
            continue
        try:
            value = getattr(node, attribute)
        except RuntimeError as error:  # freed by a backward pass, or changed in place since
            found.append((name, _why_unusable(str(error))))
            continue
        values = value if isinstance(value, (list, tuple)) else (value,)
        found += [(name, one) for one in values if isinstance(one, torch.Tensor)]
    return found + _saved_by_function(node)


def _saved_by_function(node: Any) -> _Saved:
    """What the node of a function written in Python saved, compiled ones included, and what stands on its ``ctx``."""
    try:
        packed = _packed(getattr(node, "_raw_saved_tensors", ()))
        if packed is None:
            saved = [(f"saved {k}", one) for k, one in enumerate(getattr(node, "saved_tensors", ())) if one is not None]
        else:
            saved = [(f"saved {k}", one) for k, one in enumerate(packed)] or [("saved", _ELSEWHERE)]
    except RuntimeError as error:
        saved = [("saved", _why_unusable(str(error)))]
    return saved + _on_ctx(node)


def _on_ctx(node: Any) -> _Saved:
    """Tensors that a function's forward put on ``ctx`` as attributes, which keeps them as saving does."""
    found: _Saved = []
    for key, value in getattr(node, "__dict__", {}).items():
        for tensor in _in_containers(value):
            found.append((f"ctx.{key}, {OWN_OUTPUT}" if tensor.grad_fn is node else f"ctx.{key}", tensor))
    return found


def _in_containers(value: Any) -> list[Any]:
    """The tensor, or those in a plain container; none of an object, which may be a whole model."""
    if isinstance(value, load_torch().Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for one in value for tensor in _in_containers(one)] if isinstance(value, (list, tuple)) else []


def _add_kept_by_hooks(found: Mapping[Any, _Saved]) -> None:
    """Put what hooks keep beside what they packed, as the input of a checkpoint, to the first node that they serve."""
    seen: set[int] = set()
    for node, saved in found.items():
        for hook in _unpack_hooks(node):
            for cell in getattr(hook, "__closure__", None) or ():
                try:
                    holder = cell.cell_contents
                except ValueError:  # not bound yet
                    continue
                if id(holder) not in seen:
                    seen.add(id(holder))
                    saved += [("kept by a hook", tensor) for tensor in _kept_in(holder)]


def _unpack_hooks(node: Any) -> list[Any]:
    """The functions that turn what hooks packed into saved tensors again, each once."""
    raws: list[Any] = []
    for attribute in dir(node):
        if attribute.startswith("_raw_saved_"):
            try:
                value = getattr(node, attribute)
            except RuntimeError:  # freed by a backward pass
                continue
            raws += value if isinstance(value, (list, tuple)) else (value,)
    hooks = (getattr(raw, "unpack_hook", None) for raw in raws)
    return list({id(hook): hook for hook in hooks if hook is not None}.values())


def _kept_in(holder: Any) -> list[Any]:
    """Tensors in a container that a hook closes over, or in the attributes of an object of its own (a checkpoint's)."""
    torch = load_torch()
    if isinstance(holder, (torch.nn.Module, torch.Tensor)) or callable(holder):
        return []
    saved = torch._C._autograd.SavedTensor
    items: list[Any] = find_leaves(holder, lambda item: isinstance(item, (torch.Tensor, saved)))
    return find_leaves([item.data if isinstance(item, saved) else item for item in items], torch.Tensor)


def _packed(raw: Any) -> list[Any] | None:
    """The tensors among what hooks keep in place of saved ones; ``None`` where no hook is.

    Their unpacking is not asked for: it may compute the forward pass once more. Where torch does not show hooks, none
    is seen.
    """
    raws = raw if isinstance(raw, (list, tuple)) else (raw,)
    if all(getattr(one, "unpack_hook", None) is None for one in raws):
        return None
    found: list[Any] = find_leaves([one.data for one in raws], load_torch().Tensor)
    return found


def _why_unusable(words: str) -> str:
    if "inplace" in words:
        return OVERWRITTEN
    return "freed by a backward pass" if "freed" in words else "cannot be read"
