"""Which fixes are there? The catalogue, in the order tried: cheapest to apply first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from referee.device.graph_replay import capture_graph
from referee.device.host import load_torch
from referee.device.observe import observe
from referee.errors import StepError
from referee.remedy.compiled_in_place import compile_default, compile_reduce_overhead, compiled_words, own_code_words
from referee.remedy.content import kind_of
from referee.remedy.fix import Fix, Loaded, Situation, Step
from referee.remedy.layout import keep_layout, undoes_nothing, undone_words
from referee.target import Target

BATCH_FACTOR = 4
"""A larger batch is tried at this many times the present one: twice is often lost in noise."""

_AUTOCAST_DEVICES = ("cpu", "cuda", "xpu", "mps")
_CONVOLUTIONS = ("aten::convolution", "aten::_convolution", "aten::convolution_overrideable")


def inference_mode(loaded: Loaded, _: Situation) -> Step:
    """The step inside ``torch.inference_mode``."""
    return load_torch().inference_mode()(loaded.step)  # type: ignore[no-any-return]


def inference_tensors(loaded: Loaded) -> tuple[str, ...]:
    """What a first call made inside inference mode, and the model keeps: a cache, a mask, a table of positions."""
    torch = load_torch()
    names = [
        f"{name}.{key}".lstrip(".")
        for root in loaded.roots
        for name, module in root.named_modules()
        for key, value in {**vars(module), **module._buffers}.items()
        if isinstance(value, torch.Tensor) and value.is_inference()
    ]
    if not names:
        return ()
    return (
        f"{', '.join(names[:4])} {'is an inference tensor' if len(names) == 1 else 'are inference tensors'} after the "
        "first call: updating in place, or a training step with it, raises outside of inference mode, so warm up in "
        "the mode that serves",
    )


def no_grad(loaded: Loaded, _: Situation) -> Step:
    """The step inside ``torch.no_grad``."""
    return load_torch().no_grad()(loaded.step)  # type: ignore[no-any-return]


def freeze(loaded: Loaded, _: Situation) -> Step:
    """No parameter asks for a gradient."""
    for parameter in loaded.parameters():
        parameter.requires_grad_(False)
    return loaded.step


def _still_records(step: Step, situation: Situation) -> str:
    mode = observe(step, situation.device).grad_mode
    return "" if mode != "grad" else "the step sets its grad mode itself, inside: a wrapper around it changes nothing"


def _only_inference(situation: Situation) -> str:
    if situation.trains:
        return "the step trains, so it needs its tape"
    if situation.seen.basis == "operators" and situation.seen.grad_mode != "grad":
        return f"the step runs under {situation.seen.grad_mode} already"
    return "" if situation.may_record else "nothing in it wants a gradient, so there is no tape to leave out"


def _can_compile(situation: Situation) -> str:
    if situation.seen.output is None and not situation.trains and not situation.seen.mutated:
        return "the step returns nothing and writes to nothing, so a compiler leaves all of it out: return the output"
    if situation.seen.compiled != "no":
        return compiled_words(situation)
    if situation.device_type not in ("cpu", "cuda", "xpu"):
        return f"the default compiler has no code for {situation.device_type}"
    return ""


def _can_graph(situation: Situation) -> str:
    if situation.device_type != "cuda":
        return f"CUDA graphs need a CUDA device; on {situation.device_type} there are no launches to save"
    return _can_compile(situation)


def cuda_graph(loaded: Loaded, situation: Situation) -> Step:
    """The whole step captured once and replayed."""
    return capture_graph(loaded.step, device=situation.device.name)


def larger_batch(loaded: Loaded, _: Situation) -> Step:
    """The step built for more items per call."""
    batch = loaded.target.batch_size
    if batch is None:
        raise StepError("The target declares no batch_size.")
    return loaded.target.rebuild(batch_size=BATCH_FACTOR * batch).step


def _has_batch(situation: Situation) -> str:
    return "" if situation.loaded.target.batch_size is not None else "the target declares no batch_size"


def autocast_bf16(loaded: Loaded, situation: Situation) -> Step:
    """Matrix products in bfloat16, outputs brought back to the dtype they had."""
    torch = load_torch()
    step, kind = loaded.step, situation.device_type
    if situation.trains:
        from referee.precision.control import BF16, Control

        control = Control(BF16, device_type=kind, own_sites=situation.seen.autocast != "off")
        return lambda: back_to_float32(control.call(step))

    def within() -> object:
        with torch.autocast(kind, dtype=torch.bfloat16):
            return back_to_float32(step())

    return within


def back_to_float32(output: Any) -> Any:
    """``output`` with its bfloat16 tensors in float32, nested as it was."""
    torch = load_torch()
    if isinstance(output, torch.Tensor):
        return output.float() if output.dtype == torch.bfloat16 else output
    if is_dataclass(output) and not isinstance(output, type):
        values = {field.name: getattr(output, field.name) for field in fields(output) if field.init}
        return _changed(output, values, lambda made: replace(output, **made))
    if isinstance(output, dict):
        return _changed(output, output, type(output))
    if isinstance(output, (list, tuple)):
        make = type(output)._make if hasattr(output, "_make") else type(output)
        return _changed(output, dict(enumerate(output)), lambda made: make(made.values()))
    return output


def _changed(output: Any, values: dict[Any, Any], make: Callable[[dict[Any, Any]], Any]) -> Any:
    """``output`` itself where nothing in it was converted."""
    made = {key: back_to_float32(value) for key, value in values.items()}
    return output if all(made[key] is value for key, value in values.items()) else make(made)


def _can_autocast(situation: Situation) -> str:
    if situation.device_type not in _AUTOCAST_DEVICES:
        return f"autocast does not know {situation.device_type}"
    if situation.seen.autocast != "off":
        return f"the step runs under autocast already: {situation.seen.autocast}"
    if situation.seen.dtype not in ("float32", "none"):
        return f"the step computes in {situation.seen.dtype} already"
    if not any(kind_of(op) == "product" for op in situation.seen.ops):
        return "there is no matrix product and no convolution in it"
    return ""


def fused_optimizer(loaded: Loaded, _: Situation) -> Step:
    """One call of the optimizer's kernel for a whole list of parameters."""
    _set_groups(loaded, fused=True, foreach=False)
    return loaded.step


def foreach_optimizer(loaded: Loaded, _: Situation) -> Step:
    """One call per arithmetic operation for all parameters."""
    _set_groups(loaded, foreach=True, fused=False)
    return loaded.step


def _set_groups(loaded: Loaded, **values: bool) -> None:
    torch = load_torch()
    for optimizer in loaded.held.optimizers:
        for group in optimizer.param_groups:
            group.update({key: value for key, value in values.items() if key in group})
        if values.get("fused"):
            # What the constructor does for fused=True.
            optimizer._step_supports_amp_scaling = True
            for parameter, state in optimizer.state.items():
                if isinstance(state.get("step"), torch.Tensor):
                    state["step"] = state["step"].to(device=parameter.device, dtype=torch.float32)


def _flag_is_open(flag: str) -> Any:
    def why_not(situation: Situation) -> str:
        optimizers = situation.loaded.held.optimizers
        if not optimizers:
            return "the step holds no optimizer"
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        if not any(flag in group for group in groups):
            return f"{type(optimizers[0]).__name__} has no {flag} version"
        if all(group.get(flag) for group in groups if flag in group):
            return f"the optimizer is {flag} already"
        if flag == "foreach" and situation.device_type == "cuda" and all(group.get(flag) is None for group in groups):
            return "on CUDA the optimizer takes its foreach version by itself"
        return ""

    return why_not


def set_to_none(loaded: Loaded, _: Situation) -> Step:
    """Gradients dropped instead of filled with zeros."""

    def dropping(original: Any) -> Any:
        return lambda *_args, **_kwargs: original(set_to_none=True)

    for holder in (*loaded.held.optimizers, *loaded.held.modules):
        holder.zero_grad = dropping(holder.zero_grad)
    return loaded.step


def _fills_with_zeros(situation: Situation) -> str:
    if not situation.trains:
        return "the step does not train"
    zeroed = [op for op in situation.seen.ops if op.partition(".")[0] in ("aten::zero_", "aten::_foreach_zero_")]
    return "" if zeroed else "no gradient is filled with zeros"


def channels_last(loaded: Loaded, _: Situation) -> Step:
    """Weights and images with the channels as the innermost dimension."""
    torch = load_torch()
    layout = torch.channels_last
    for module in loaded.roots:
        module.to(memory_format=layout)
    for tensor in loaded.held.tensors:
        if tensor.dim() == 4 and tensor.is_floating_point():
            tensor.data = tensor.data.contiguous(memory_format=layout)
    return loaded.step


def _convolves(situation: Situation) -> str:
    torch = load_torch()
    convolutions = [
        m for root in situation.loaded.roots for m in root.modules() if isinstance(m, torch.nn.modules.conv._ConvNd)
    ]
    images = [t for t in situation.loaded.held.tensors if t.dim() == 4 and t.is_floating_point()]
    if not convolutions and not any(op.partition(".")[0] in _CONVOLUTIONS for op in situation.seen.ops):
        return "there is no convolution in it"
    if not images:
        return "the step holds no images (floating tensors of four dimensions) whose layout could be changed"
    if all(image.is_contiguous(memory_format=torch.channels_last) for image in images):
        return "the images are channels_last already"
    return ""


def rewrite(name: str, load: Callable[[], Target]) -> Fix:
    """The user's own rewrite as a fix: another target, held against the first."""
    return Fix(
        name=name,
        title=f"The rewrite {name}",
        how=f"use {name}",
        attacks="what its author says",
        apply=lambda loaded, _situation: loaded.step,
        build=load,
        changes=("switches.grad_mode",),
    )


CATALOGUE: tuple[Fix, ...] = (
    Fix(
        name="inference-mode",
        title="Leave out autograd: inference mode",
        how="with torch.inference_mode(): …",
        attacks="per-op CPU overhead",
        apply=inference_mode,
        why_not=_only_inference,
        changes=("switches.grad_mode",),
        failed=_still_records,
        leaves=inference_tensors,
    ),
    Fix(
        name="no-grad",
        title="Leave out autograd: no_grad",
        how="with torch.no_grad(): …",
        attacks="per-op CPU overhead",
        apply=no_grad,
        why_not=_only_inference,
        changes=("switches.grad_mode",),
        failed=_still_records,
    ),
    Fix(
        name="freeze",
        title="Leave out autograd: freeze the parameters",
        how="model.requires_grad_(False)",
        attacks="per-op CPU overhead",
        apply=freeze,
        why_not=_only_inference,
    ),
    Fix(
        name="fused-optimizer",
        title="Fused optimizer",
        how="torch.optim.…(params, fused=True)",
        attacks="per-op CPU overhead",
        apply=fused_optimizer,
        why_not=_flag_is_open("fused"),
        update_tolerance=1e-3,
    ),
    Fix(
        name="foreach-optimizer",
        title="Foreach optimizer",
        how="torch.optim.…(params, foreach=True)",
        attacks="per-op CPU overhead",
        apply=foreach_optimizer,
        why_not=_flag_is_open("foreach"),
        update_tolerance=1e-3,
    ),
    Fix(
        name="set-to-none",
        title="Drop gradients instead of zeroing them",
        how="optimizer.zero_grad(set_to_none=True)",
        attacks="memory traffic between operators",
        apply=set_to_none,
        why_not=_fills_with_zeros,
    ),
    Fix(
        name="channels-last",
        title="Channels last",
        how="model.to(memory_format=torch.channels_last), and the images as well",
        attacks="arithmetic",
        apply=channels_last,
        why_not=_convolves,
        changes=("shapes",),
        strides=True,
    ),
    Fix(
        name="keep-layout",
        title="Leave out contiguous() after channels_last",
        how="leave it out, or .contiguous(memory_format=torch.channels_last)",
        attacks="memory traffic between operators",
        apply=keep_layout,
        why_not=undoes_nothing,
        finds=undone_words,
        strides=True,
    ),
    Fix(
        name="autocast-bf16",
        title="Matrix products in bfloat16",
        how="with torch.autocast(device, dtype=torch.bfloat16): … (outputs back to float32)",
        attacks="arithmetic",
        apply=autocast_bf16,
        why_not=_can_autocast,
        changes=("dtype", "switches.autocast", "switches.autocast_site"),
        precision="bfloat16",
    ),
    Fix(
        name="larger-batch",
        title=f"A batch {BATCH_FACTOR} times as large",
        how=f"--batch-size {BATCH_FACTOR}N: time per item",
        attacks="per-op CPU overhead",
        apply=larger_batch,
        why_not=_has_batch,
        changes=("shapes", "dtype"),
        items=BATCH_FACTOR,
    ),
    Fix(
        name="compile",
        title="torch.compile",
        how="torch.compile(step), model.compile() where the step trains",
        attacks="per-op CPU overhead and memory traffic between operators",
        apply=compile_default,
        why_not=_can_compile,
        finds=own_code_words,
        compiles=True,
    ),
    Fix(
        name="compile-reduce-overhead",
        title="torch.compile with CUDA graphs",
        how='torch.compile(step, mode="reduce-overhead")',
        attacks="per-op CPU overhead",
        apply=compile_reduce_overhead,
        why_not=_can_graph,
        compiles=True,
        reuses_memory=True,
    ),
    Fix(
        name="cuda-graph",
        title="The whole step as one CUDA graph",
        how="torch.cuda.graph with static inputs: graph.replay() per step",
        attacks="per-op CPU overhead",
        apply=cuda_graph,
        why_not=_can_graph,
        reuses_memory=True,
        warms_up=True,
    ),
)
"""Every fix that is tried unless the user names some."""


def fix_named(name: str) -> Fix | None:
    """The fix of this name."""
    return next((fix for fix in CATALOGUE if fix.name == name), None)
