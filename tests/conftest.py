"""Shared fixtures: where the recorded traces are, and what this machine has."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says what else the machine does, and nothing of what is tested.
settings.register_profile(
    "any load", parent=settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any load")


def find_traces() -> Path | None:
    """The folder of recorded traces: ``REFEREE_TRACES``, else ``../shared/traces`` beside the repository."""
    named = os.environ.get("REFEREE_TRACES")
    folder = Path(named) if named else Path(__file__).resolve().parents[1].parent / "shared" / "traces"
    return folder if (folder / "EXPECTED.json").is_file() else None


@pytest.fixture(scope="session")
def traces_dir() -> Path:
    """The folder of recorded traces, or a skip with the reason."""
    folder = find_traces()
    if folder is None:
        pytest.skip("recorded traces not found: set REFEREE_TRACES to their folder")
    return folder


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for ``recorded`` runs once for every recorded trace, by its name in ``EXPECTED.json``."""
    if "recorded" in metafunc.fixturenames:
        folder = find_traces()
        names = sorted(json.loads((folder / "EXPECTED.json").read_bytes())) if folder else ["none found"]
        metafunc.parametrize("recorded", names)
