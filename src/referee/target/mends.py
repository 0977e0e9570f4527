"""What mends a step in which torch refuses to use a graph, a scaler or a dtype as it is used there?"""

from __future__ import annotations

import re

_MENDS: tuple[tuple[str, str], ...] = (
    # The graph.
    (
        "backward through the graph a second time",
        "What one call keeps for the next (a hidden state, a sum) carries its graph: detach it there. To go back twice "
        "in one call, add the losses up, or give the first backward retain_graph=True.",
    ),
    (
        "does not require grad and does not have a grad_fn",
        "Look for what cuts the loss off from the parameters: no_grad, detach, .item(), argmax or another integer, "
        "torch.tensor(…) of a tensor, or parameters that are all frozen.",
    ),
    (
        "grad can be implicitly created only for scalar outputs",
        "Make one number of the loss (.mean() or .sum()), or give backward the gradient of what it begins at.",
    ),
    (
        "needed for gradient computation has been modified by an inplace operation",
        "Write the operator after the one that is named out of place (h = h + 1, no underscore, inplace=False), and an "
        "optimizer's step after the backward. torch.autograd.set_detect_anomaly(True) names the line.",
    ),
    ("leaf Variable that requires grad", "Change parameters under torch.no_grad()."),
    (
        "view .*modified inplace",
        "Write out of place (h = h + 1, no underscore), or to a clone of the view; a view that was made under no_grad "
        "or in inference mode is written to under the same.",
    ),
    (
        "[Ii]nference tensor",
        "A tensor that was made in inference mode meets autograd or an update: make it outside of inference_mode, or "
        "clone it outside, and warm up in the mode that is used later.",
    ),
    (
        "torch.utils.checkpoint",
        "What is checkpointed runs a second time in backward and must compute the same: no state that it changes or "
        "reads elsewhere, no random numbers of Python's or NumPy's, the same autocast and grad mode inside.",
    ),
    # The scaler.
    (
        "No inf checks were recorded for this optimizer",
        "scaler.step finds no gradient at the optimizer's parameters: let scaler.scale(loss).backward() reach them, "
        "and call zero_grad before it or after the step, not in between.",
    ),
    (
        "No inf checks were recorded prior to update",
        "Call scaler.update() only after scaler.step(optimizer): not in an iteration that only accumulates.",
    ),
    (
        r"unscale_\(\) (has already been|is being) called",
        "Unscale once per step, after the last backward of those that are accumulated; scaler.update() ends the step.",
    ),
    (
        "Attempting to unscale FP16 gradients",
        "Keep the trained weights in float32 and let autocast cast them, or use bf16 without a scaler.",
    ),
    # Dtypes.
    (
        "the same dtype|should be the same|expected scalar type|autocast::prioritize",
        "Bring the operands to one dtype (x.to(weight.dtype)), or compute them inside one autocast region; where it is "
        "switched off, convert what comes from outside of it.",
    ),
    (
        "without overflow",
        "Fill with torch.finfo(x.dtype).min, or with -inf where no row is masked whole, instead of a fixed number.",
    ),
    (
        "not implemented for '(Half|BFloat16)'",
        "This operator has no kernel in that dtype here: compute it in float32 (x.float()) and convert the result.",
    ),
)
"""What torch says, as a pattern, and what mends it."""


def mend_of(said: str) -> str:
    """The mend for what torch says; empty where none is known."""
    return next((mend for pattern, mend in _MENDS if re.search(pattern, said, re.DOTALL)), "")
