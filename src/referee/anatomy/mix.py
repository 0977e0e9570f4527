"""What else runs around an operator in a model? Small operators of other kinds, to be called in between.

A loop of one operator keeps its code, its branches and the dispatcher's table at hand; in a model others come in
between. The mix is source text, so that an expression can be set between its lines without a call of its own; what it
costs is the difference between the mix with the expression and without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from referee.device.host import load_torch

_LINES = """
m_c = m_torch.mm(m_a, m_b)
m_d = m_torch.relu(m_c)
m_e = m_d.t()
m_torch.cat((m_d, m_a))
m_torch.sum(m_a, 0)
m_a.view(4, 16).transpose(0, 1)
m_torch.where(m_mask, m_a, m_b)
m_torch.exp(m_a)
m_torch.maximum(m_a, m_b)
m_torch.mul(m_a, m_b)
m_torch.addmm(m_row, m_a, m_b)
m_torch.sigmoid(m_a)
m_torch.index_select(m_a, 0, m_counts)
m_a[2:4]
m_torch.neg(m_a)
m_a.unsqueeze(1).expand(8, 2, 8)
m_torch.mean(m_a)
m_torch.lt(m_a, m_b)
m_torch.zeros(8, device=m_device)
m_torch.empty_like(m_a)
m_torch.bmm(m_image, m_image)
m_torch.gather(m_row, 0, m_counts)
m_row.to(m_torch.float64)
m_torch.rsqrt(m_a)
m_e.contiguous()
m_torch.clamp(m_a, 0.0, 1.0)
"""

EVERY = 2
"""So many lines of the mix stand between two copies of the expression."""


@dataclass(frozen=True, kw_only=True)
class Mix:
    """The lines, in groups with a place for the expression behind each, and the names they use."""

    groups: tuple[tuple[str, ...], ...]
    names: Mapping[str, Any]

    @property
    def places(self) -> int:
        """How many copies of the expression one pass through the mix holds."""
        return len(self.groups)

    def around(self, source: str) -> str:
        """The body of a loop: the mix, with ``source`` behind each group."""
        return "\n".join(line for group in self.groups for line in (*group, source))


def make_mix(device: str = "cpu") -> Mix:
    """A mix of some thirty operators on tensors of 64 numbers that require no gradient."""
    torch = load_torch()
    rand = torch.rand
    names = {
        "m_torch": torch,
        "m_device": device,
        "m_a": rand(8, 8, device=device) + 0.5,
        "m_b": rand(8, 8, device=device) + 0.5,
        "m_row": rand(8, device=device),
        "m_counts": torch.arange(8, device=device),
        "m_mask": rand(8, 8, device=device) > 0.5,
        "m_image": rand(2, 4, 4, device=device),
    }
    lines = _LINES.strip().splitlines()
    groups = tuple(tuple(lines[k : k + EVERY]) for k in range(0, len(lines), EVERY))
    return Mix(groups=groups, names=names)
