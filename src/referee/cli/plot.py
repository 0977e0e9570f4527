"""``--plot PATH``: the answer's curve as a file of its own, SVG or PNG."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from referee.cli.output import note
from referee.errors import OptionError

if TYPE_CHECKING:
    from referee.records.document import Plot


def add_plot_argument(parser: argparse.ArgumentParser, *, what: str) -> None:
    """Declare ``--plot``."""
    parser.add_argument("--plot", metavar="PATH", help=f"draw {what}: .svg or .png")


def check_plot(path: str | None) -> None:
    """Refuse a plot that could not be written, before anything is measured."""
    if path is None:
        return
    if Path(path).suffix.lower() not in (".svg", ".png"):
        raise OptionError(f"--plot {path}: the suffix says the format.", hint="Use .svg or .png.")
    if not Path(path).resolve().parent.is_dir():
        raise OptionError(f"--plot {path}: there is no such directory.", hint="Create it first.")
    if Path(path).suffix.lower() == ".png":
        from referee.report.picture import require_matplotlib

        require_matplotlib()


def write_plot(plot: Plot, path: str) -> None:
    """Write ``plot`` as SVG or PNG."""
    from referee.records.schema import write_atomically
    from referee.report.picture import render_picture

    write_atomically(render_picture(plot, Path(path).suffix.lower()), path)
    note(f"plot written to {path}")
