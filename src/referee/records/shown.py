"""What does a notebook show of a record? Its report, made by the renderers above this layer, which it knows by name."""

from __future__ import annotations

from importlib import import_module


class Shown:
    """A record whose value in a notebook cell is its report."""

    def _repr_html_(self) -> str:
        """The report as a fragment of HTML: no script, nothing loaded, whatever the user's names hold made safe."""
        # By name: this layer does not know the renderers above it.
        fragment: str = import_module("referee.report.notebook").render_notebook(self)
        return fragment
