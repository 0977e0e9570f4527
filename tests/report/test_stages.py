"""What a lazy backend's own account says of a call is shown, and nothing where there is none."""

from __future__ import annotations

from dataclasses import replace

from referee.report.compose import compose
from referee.report.text import render_text

from .live_samples import MEASUREMENT


def test_stages_are_shown_where_the_backend_tells_them() -> None:
    stages = {"tracing_ns": 12_000.0, "compile_ns": 0.0, "execute_ns": 700_000.0, "executions": 1.0}
    text = render_text(compose(replace(MEASUREMENT, stages=stages)), width=100, color=False)
    assert "Recording" in text
    assert "700 µs" in text
    assert "own account" not in render_text(compose(MEASUREMENT), width=100, color=False)
