"""What is the step made of? Each operator that eager issues, by what a compiler would do with it, with bytes and time.

Watched in two calls of their own: one under a dispatch mode (operators, bytes, module calls), one under the profiler
(each operator's own share of the time).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from referee.device.host import load_torch
from referee.device.protocol import Device
from referee.device.settle import find_leaves

Kind = Literal["fused", "view", "product", "replaced", "random", "other"]

_NAMES: Mapping[Kind | Literal["allocation"], str] = {
    "view": """
        view _unsafe_view reshape t transpose permute expand slice select unsqueeze squeeze as_strided
        detach alias split split_with_sizes unbind chunk narrow unfold diagonal movedim _reshape_alias
    """,
    "product": """
        conv1d conv2d conv3d conv_transpose2d mm addmm bmm baddbmm
        matmul linear addmv mv dot convolution _convolution convolution_backward
        mkldnn_linear _scaled_dot_product_flash_attention_for_cpu
        _scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_flash_attention
        _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention mkldnn_rnn_layer
        _cudnn_rnn
    """,
    "replaced": """
        batch_norm layer_norm group_norm softmax log_softmax max_pool2d
        adaptive_avg_pool2d cross_entropy_loss nll_loss max_pool2d_with_indices
        max_pool2d_with_indices_backward avg_pool2d _adaptive_avg_pool2d
        adaptive_max_pool2d native_batch_norm native_batch_norm_backward _native_batch_norm_legit
        _native_batch_norm_legit_no_training _batch_norm_with_update batch_norm_backward native_layer_norm
        native_layer_norm_backward native_group_norm native_group_norm_backward _softmax
        _softmax_backward_data _log_softmax _log_softmax_backward_data embedding embedding_dense_backward
        _embedding_bag gather index index_select index_put scatter scatter_add nll_loss_forward
        nll_loss_backward exp log sin cos tan tanh sigmoid gelu gelu_backward erf pow sqrt rsqrt silu
        softplus logsumexp cumsum sort topk upsample_bilinear2d upsample_nearest2d mean sum var var_mean std
        norm linalg_vector_norm amax amin argmax
    """,
    "random": """
        bernoulli bernoulli_ native_dropout rand randn rand_like randn_like normal_ uniform_
    """,
    "allocation": """
        empty empty_like empty_strided new_empty zeros ones full resize_ set_
    """,
}
"""Operators by what a compiler does with them: ``product`` is left to the library that eager calls, ``replaced`` is
computed by code written anew (pooling, norms, gathers, reductions, transcendentals); what is not listed is fused."""

_KIND_OF = {name: kind for kind, names in _NAMES.items() for name in names.split()}


@dataclass
class Content:
    """What one call was seen to do; bytes are those that operators returned."""

    operators: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    optimizer_ops: int = 0
    intermediate_bytes: int = 0
    """Written by operators that a compiler fuses, outside of the optimizer."""
    groups: int = 0
    """Runs of operators between two products: at most so many fused kernels are needed."""
    module_calls: int = 0
    calls: int = 0
    """Calls of operators as a profiler counts them, those that operators make of one another included: an operator on a
    list makes one per tensor where there is no kernel for the list."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Operator → its share of the time that operators took by themselves."""

    @property
    def n_ops(self) -> int:
        """All operators below autograd."""
        return sum(self.operators.values())

    def share(self, *kinds: Kind) -> float:
        """The time share of these kinds."""
        return sum(frac for name, frac in self.shares.items() if kind_of(name) in kinds)

    def named(self, *kinds: Kind) -> tuple[str, ...]:
        """The operators of these kinds, those that take most first."""
        mine = {name: frac for name, frac in self.shares.items() if kind_of(name) in kinds}
        return tuple(sorted(mine, key=lambda name: -mine[name]))


def kind_of(name: str) -> Kind:
    """What a compiler would do with ``aten::name.overload``; an operator in place counts as the one that is not."""
    short = name.removeprefix("aten::").partition(".")[0]
    kind = _KIND_OF.get(short) or _KIND_OF.get(short.rstrip("_"))
    if kind == "allocation" or short.startswith(("_local_scalar", "item")):
        return "other"
    return kind or "fused"


def read_content(step: Callable[[], object], *, device: Device) -> Content:
    """Call ``step`` twice, watched, and say what it is made of. What it raises passes through."""
    content = _watch(step, device=device)
    content.shares, content.calls = _time_shares(step, device=device)
    return content


def _watch(step: Callable[[], object], *, device: Device) -> Content:
    from torch.nn.modules.module import register_module_forward_pre_hook
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    from referee.device.dispatch_mode import ListeningMode

    torch = load_torch()
    content, state = Content(), {"optimizer": False, "open": False}

    class Watch(ListeningMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            output = func(*args, **(kwargs or {}))
            name = str(func._schema.name)
            kind = kind_of(name)
            content.operators[name] += 1
            if state["optimizer"]:
                content.optimizer_ops += 1
                return output
            content.kinds[kind] += 1
            if kind == "product":
                state["open"] = False
            elif kind in ("fused", "replaced", "random"):
                content.groups += not state["open"]
                state["open"] = True
                leaves: list[Any] = find_leaves(output, torch.Tensor)
                content.intermediate_bytes += sum(leaf.numel() * leaf.element_size() for leaf in leaves)
            return output

    def count_module(*_: Any) -> None:
        content.module_calls += 1

    def enter(*_: Any) -> None:
        state["optimizer"] = True

    def leave(*_: Any) -> None:
        state["optimizer"] = False

    hooks = [
        register_module_forward_pre_hook(count_module),
        register_optimizer_step_pre_hook(enter),
        register_optimizer_step_post_hook(leave),
    ]
    try:
        with Watch():
            device.settle(step())
    finally:
        for hook in hooks:
            hook.remove()
    return content


def _time_shares(step: Callable[[], object], *, device: Device) -> tuple[dict[str, float], int]:
    """Each operator's own time over that of all (device time where the device has rows of its own), and their calls."""
    torch = load_torch()
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.name.startswith("cuda"):
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiler:
        device.settle(step())
    attribute = "self_device_time_total" if device.name.startswith("cuda") else "self_cpu_time_total"
    times: dict[str, float] = {}
    calls = 0
    for row in profiler.key_averages():
        if str(row.key).startswith("aten::"):
            calls += int(row.count)
            with suppress(AttributeError):
                times[str(row.key)] = float(getattr(row, attribute))
    total = sum(times.values())
    return {name: time / total for name, time in times.items() if time > 0} if total > 0 else {}, calls
