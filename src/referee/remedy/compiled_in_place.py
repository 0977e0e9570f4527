"""How is a step compiled? The whole of it, or, where it trains, the models in it and in their place."""

from __future__ import annotations

from typing import Any

from referee.device.host import load_torch
from referee.remedy.fix import Loaded, Situation, Step


def compile_default(loaded: Loaded, situation: Situation) -> Step:
    """The models compiled in place where the step trains, else the step itself."""
    return _compiled(loaded, situation)


def compile_reduce_overhead(loaded: Loaded, situation: Situation) -> Step:
    """The same with CUDA graphs."""
    step = _compiled(loaded, situation, mode="reduce-overhead")
    torch = load_torch()

    def marked() -> object:
        torch.compiler.cudagraph_mark_step_begin()
        return step()

    return marked


def _compiled(loaded: Loaded, situation: Situation, **options: Any) -> Step:
    torch = load_torch()
    if situation.trains and loaded.roots:
        # The loop around the model (backward, the optimizer) breaks graphs: what users compile there is the model.
        for module in loaded.roots:
            _compile_in_place(module, **options)
        return loaded.step
    return torch.compile(loaded.step, **options)  # type: ignore[no-any-return]


def _compile_in_place(module: Any, **options: Any) -> None:
    """``module.compile()``, also for torch's own classes, of whose code torch compiles nothing in place."""
    if not _is_torchs(module):
        module.compile(**options)
        return
    plain = module._call_impl

    def call(*args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    module._compiled_call_impl = load_torch().compile(call, **options)


def _is_torchs(module: Any) -> bool:
    return type(module).__module__.partition(".")[0] == "torch"


def own_code_words(situation: Situation) -> tuple[str, ...]:
    """Where ``module.compile()`` compiles nothing."""
    names = {type(module).__name__: None for module in situation.loaded.roots if _is_torchs(module)}
    if not situation.trains or not names:
        return ()
    return (
        f"{', '.join(names)} is torch's own code, of which module.compile() compiles nothing: torch.compile(module), "
        "or a module of your own around it",
    )


def compiled_words(situation: Situation) -> str:
    """Why a step that holds something compiled is not compiled once more; whether any of it ran compiled at all."""
    held = situation.seen.compiled
    if held.startswith("torch.compile") and situation.device.counters().get("compile.frames") == 0:
        return (
            f"the step holds {held}, and nothing was compiled in its calls: it calls a method of the module, or the "
            "module inside, and not the compiled forward. Compile what is called"
        )
    return f"the step is compiled already: {held}"
