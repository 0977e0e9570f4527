"""How much must this operator compute and move at least? FLOPs and bytes from the shapes and dtypes of its inputs.

Rows state inputs only, so outputs are inferred; operators whose output shape does not follow from shapes alone
(convolutions with their strides, indexing, reductions along some axis) have no cost here rather than a guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from referee.trace.details import Operator

_SIZES = {
    "float": 4,
    "c10::BFloat16": 2,
    "c10::Half": 2,
    "double": 8,
    "int": 4,
    "long": 8,
    "long int": 8,
    "short": 2,
    "bool": 1,
    "signed char": 1,
    "unsigned char": 1,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
}
_DTYPES = {"float": "float32", "c10::BFloat16": "bfloat16", "c10::Half": "float16", "double": "float64"}

POINTWISE = re.compile(
    r"^aten::(add|sub|rsub|mul|div|neg|abs|exp|log|sqrt|rsqrt|pow|sin|cos|relu|gelu|silu|sigmoid|tanh|erf|clamp|"
    r"clamp_min|clamp_max|threshold|hardtanh|leaky_relu|where|maximum|minimum|square|reciprocal|copy|fill|zero|eq|ne|"
    r"lt|le|gt|ge|logical_and|logical_or|logical_not|bitwise_and|bitwise_or|bitwise_not|masked_fill|addcmul|addcdiv|"
    r"lerp|threshold_backward|gelu_backward|silu_backward|sigmoid_backward|tanh_backward|native_dropout|"
    r"native_dropout_backward|_to_copy)_?$"
)
"""Operators whose output has the broadcast shape of their inputs, at one operation an element."""

NORM_LIKE = re.compile(r"^aten::(native_layer_norm|layer_norm|rms_norm|_fused_rms_norm|_softmax|_log_softmax|"
                       r"native_batch_norm|cudnn_batch_norm|miopen_batch_norm)$")  # fmt: skip
"""Operators that read a tensor, reduce along some of it, and write one of the same shape."""
_NORM_FLOPS = 5
"""Operations an element of a norm or a softmax, about."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The least an operator must do: floating-point operations, bytes read and written, and its inputs' dtype."""

    flops: int
    size_bytes: int
    dtype: str


def dtype_name(text: str) -> str:
    """``c10::BFloat16`` → ``bfloat16``; the text itself where it is not known."""
    if text.startswith("c10::Float8"):
        return "float8"
    return _DTYPES.get(text, text)


def element_bytes(text: str) -> int | None:
    """Bytes of an element of this dtype as rows write it; ``None`` where it is no tensor's."""
    return 1 if text.startswith("c10::Float8") else _SIZES.get(text)


def broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The shape that these broadcast to; ``None`` if they do not."""
    result: list[int] = []
    for shape in shapes:
        longest = max(len(result), len(shape))
        left, right = ([1] * (longest - len(s)) + list(s) for s in (result, shape))
        merged = []
        for a, b in zip(left, right, strict=True):
            if a != b and 1 not in (a, b):
                return None
            merged.append(b if a == 1 else a)
        result = merged
    return tuple(result)


def cost_of(name: str, operator: Operator) -> Cost | None:
    """The cost of one call, ``None`` where it cannot be told from the shapes of the inputs."""
    if operator.types:
        tensors = [(d, t) for d, t in zip(operator.dims, operator.types, strict=False) if element_bytes(t) and d]
    else:
        tensors = []
    if not tensors:
        return None
    matrix = _matrix_product(name, [d for d, _ in tensors])
    sizes = [prod(d) * (element_bytes(t) or 0) for d, t in tensors]
    dtype, out_bytes = dtype_name(tensors[0][1]), element_bytes(tensors[0][1]) or 0
    if matrix is not None:
        flops, out = matrix
        return Cost(flops=flops, size_bytes=sum(sizes) + out * out_bytes, dtype=dtype)
    output = output_shape(name, operator)
    if output is None:
        return None
    count = prod(output)
    operations = count * (_NORM_FLOPS if NORM_LIKE.match(name) else 1)
    read = sizes[1:] if name in ("aten::copy_", "aten::fill_", "aten::zero_") else sizes
    return Cost(flops=operations, size_bytes=sum(read) + count * out_bytes, dtype=dtype)


def output_shape(name: str, operator: Operator) -> tuple[int, ...] | None:
    """The shape of the output of a pointwise or norm-like operator; ``None`` for any other."""
    shapes = [d for d, t in zip(operator.dims, operator.types, strict=False) if element_bytes(t) and d]
    if not shapes:
        return None
    if NORM_LIKE.match(name):
        return shapes[0]
    return broadcast(shapes) if POINTWISE.match(name) else None


def _matrix_product(name: str, dims: list[tuple[int, ...]]) -> tuple[int, int] | None:
    """FLOPs and output elements of a matrix product; ``None`` for anything else."""
    operands = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1, "aten::_addmm_activation": 1}
    if name == "aten::linear" and len(dims) >= 2 and len(dims[1]) == 2 and dims[0][-1] == dims[1][1]:
        out = prod(dims[0][:-1]) * dims[1][0]
        return 2 * out * dims[1][1], out
    if name not in operands or len(dims) < operands[name] + 2:
        return None
    a, b = dims[operands[name] : operands[name] + 2]
    if len(a) != len(b) or len(a) < 2 or a[-1] != b[-2] or a[:-2] != b[:-2]:
        return None
    out = prod(a[:-1]) * b[-1]
    return 2 * out * a[-1], out
