"""What could this device do at best? Dense peaks by tokens of the device's name, never the sparse marketing figures."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Peak:
    """Dense peaks of one product, in FLOP/s by arithmetic and bytes/s of its memory.

    ``ceiling`` is the highest matrix rate measured and published for 16-bit inputs, where it is known to lie far below
    the data sheet; roofs use it.
    """

    product: str
    float32: float
    tensor16: float
    bandwidth: float
    tf32: float | None = None
    float8: float | None = None
    ceiling16: float | None = None

    def flop_per_s(self, dtype: str) -> float:
        """The roof for inputs of this dtype; unknown dtypes count as float32."""
        if dtype in ("bfloat16", "float16"):
            return self.ceiling16 or self.tensor16
        if dtype == "float8" and self.float8:
            return self.float8
        if dtype == "tf32" and self.tf32:
            return self.tf32
        return self.float32

    def most_flop_per_s(self, dtype: str, *, autocast: bool = False) -> float:
        """More than this nothing reaches with inputs of this dtype, whatever the switches: the data sheet's figures."""
        fast32 = max(self.float32, self.tf32 or 0.0)
        fast16 = max(fast32, self.tensor16)
        # Where the data sheet has no figure, half the bits are twice the rate at most.
        fast8 = max(2 * fast16, self.float8 or 0.0)
        if dtype.startswith(("float8", "int8", "uint8", "qint8", "quint8")):
            return fast8
        if dtype.startswith(("float4", "int4", "uint4")):
            return 2 * fast8
        return fast16 if autocast or dtype in ("bfloat16", "float16", "complex32") else fast32


_TERA = 1e12
_Row = tuple[str, str, float, float | None, float, float | None, float, float | None]
# Tokens, product, then in TFLOP/s and TB/s: float32, TF32, 16-bit, 8-bit, memory, and the measured 16-bit ceiling.
# The first row whose every token occurs wins, so the more special ones come first. Sources: the vendors' data sheets,
# dense figures; the ceiling of MI300X is the maximum achievable rate that AMD publishes.
_TABLE: tuple[_Row, ...] = (
    ("h200", "H200", 66.9, 494.7, 989.4, 1978.9, 4.8, None),
    ("h100 nvl", "H100 NVL", 60, 417.5, 835.5, 1671, 3.9, None),
    ("h100 pcie", "H100 PCIe", 51.2, 378, 756, 1513, 2.0, None),
    ("h100", "H100 SXM", 66.9, 494.7, 989.4, 1978.9, 3.35, None),
    ("b200", "B200", 75, 1100, 2250, 4500, 8.0, None),
    ("a100 80gb pcie", "A100 80GB PCIe", 19.5, 156, 312, None, 1.935, None),
    ("a100 80gb", "A100 80GB", 19.5, 156, 312, None, 2.039, None),
    ("a100", "A100 40GB", 19.5, 156, 312, None, 1.555, None),
    ("a10g", "A10G", 31.5, 35, 70, None, 0.6, None),
    ("a10", "A10", 31.2, 62.5, 125, None, 0.6, None),
    ("a40", "A40", 37.4, 74.8, 149.7, None, 0.696, None),
    ("l40s", "L40S", 91.6, 183, 362, 733, 0.864, None),
    ("l4", "L4", 30.3, 60, 121, 242, 0.3, None),
    ("v100", "V100", 15.7, None, 125, None, 0.9, None),
    ("t4", "T4", 8.1, None, 65, None, 0.32, None),
    ("rtx 4090", "RTX 4090", 82.6, 82.6, 165.2, 330, 1.008, None),
    ("rtx 3090", "RTX 3090", 35.6, 35.6, 71, None, 0.936, None),
    ("rtx 3060 ti", "RTX 3060 Ti", 16.2, 16.2, 32.4, None, 0.448, None),
    ("mi325x", "MI325X", 163.4, 653.7, 1307.4, 2614.9, 6.0, None),
    ("mi300x", "MI300X", 163.4, 653.7, 1307.4, 2614.9, 5.3, 708),
    ("mi250", "MI250X", 95.7, None, 383, None, 3.28, None),
    ("mi210", "MI210", 45.3, None, 181, None, 1.64, None),
)


def find_peak(device_name: str) -> Peak | None:
    """The peaks of the product whose tokens all occur in the name, as whole words: ``NVIDIA H100 80GB HBM3``."""
    words = set(re.split(r"[^a-z0-9]+", device_name.lower()))
    for tokens, product, float32, tf32, tensor16, float8, bandwidth, ceiling16 in _TABLE:
        if all(token in words for token in tokens.split()):
            return Peak(
                product=product,
                float32=float32 * _TERA,
                tf32=tf32 and tf32 * _TERA,
                tensor16=tensor16 * _TERA,
                float8=float8 and float8 * _TERA,
                bandwidth=bandwidth * _TERA,
                ceiling16=ceiling16 and ceiling16 * _TERA,
            )
    return None
