"""The page of each regime: it exists, and the trace that it offers to try is of that regime."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from referee.analysis.diagnose import diagnose
from referee.records.verdict import Regime
from referee.trace.reader import read_trace

PAGES = Path(__file__).resolve().parents[2] / "docs" / "regimes"
REGIMES = get_args(Regime)


def test_every_regime_has_a_page() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == set(REGIMES)


@pytest.mark.parametrize("regime", [name for name in REGIMES if name != "overhead-bound"])
def test_the_trace_to_try_is_of_that_regime(regime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (PAGES / f"{regime}.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, f"{regime}.md", "exec"), {})
    assert diagnose(read_trace(tmp_path / f"{regime}.json")).verdict.regime == regime
