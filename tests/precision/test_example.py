"""The example runs as it is documented, and the watch sees what its docstring says is wrong."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("torch")


def test_the_watched_loop(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).resolve().parents[2] / "examples" / "precision_watch.py"
    spec = importlib.util.spec_from_file_location("example_precision_watch", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    seen = module.main()
    codes = {finding.code for finding in seen.findings}
    assert codes == {
        "autocast-without-dtype",
        "scaler-for-nothing",
        "clip-before-unscale",
        "scheduler-on-skipped-step",
        "scale-low",
        "scale-collapsed",
        "steps-skipped",
    }
    shown = capsys.readouterr().out
    assert "stopped: The loss scale is 0" in shown
    assert all(finding.hint in shown for finding in seen.findings)
    # The scale halves from 2^16 to 2^-149 and once more: 166 skipped steps until it is 0.
    assert seen.skipped == 166
