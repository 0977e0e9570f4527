"""What is read about this machine agrees with other ways of reading it; what cannot be read says so."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.device import chip
from referee.device.chip import format_cores, parse_cores, parse_size
from referee.device.fake import FakeAsync, FakeSync
from referee.device.provenance import collect, mark_machine
from referee.device.repository import read_repository
from referee.errors import ProvenanceError
from referee.records.provenance import NOT_READ

METHOD = {"clock": "settled_amortised"}


@dataclass
class Source:
    name: str
    source_file: str | None


def read(device: object = None, **options: object):  # type: ignore[no-untyped-def]
    return collect(device or FakeSync(), dtype="float32", shapes=(), method=METHOD, **options)  # type: ignore[arg-type]


@given(st.frozensets(st.integers(0, 200)))
def test_lists_of_cores_go_there_and_back(cores: frozenset[int]) -> None:
    assert parse_cores(format_cores(cores)) == cores


def test_lists_of_cores_read_as_the_kernel_writes_them() -> None:
    assert format_cores([8, 0, 1, 2, 3]) == "0-3,8"
    assert format_cores([]) == ""
    assert parse_size("1024K") == 1 << 20
    assert parse_size("32M") == 32 << 20


def test_the_chip_agrees_with_the_standard_library() -> None:
    found = read().chip
    assert found["logical_cores"] == os.cpu_count()
    assert parse_cores(str(found["affinity"])) == os.sched_getaffinity(0)
    assert isinstance(found["calibration_ns"], int)
    assert found["calibration_ns"] > 0


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="needs Linux's /proc")
def test_a_changed_affinity_is_seen() -> None:
    """Read in a process of its own, so that the pinning does not outlive the test."""
    code = (
        "import os; os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})\n"
        "from referee.device.chip import read_chip; print(read_chip()['affinity'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(max(os.sched_getaffinity(0)))


def test_quotas_of_both_kinds_of_control_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new, old, free, none = (tmp_path / name for name in ("new", "old", "free", "none"))
    for folder in (new, old, free, none):
        folder.mkdir()
    (new / "cpu.max").write_text("150000 100000\n")
    (new / "cpu.stat").write_text("usage_usec 7\nnr_throttled 3\n")
    (old / "cpu.cfs_quota_us").write_text("50000\n")
    (old / "cpu.cfs_period_us").write_text("100000\n")
    (free / "cpu.max").write_text("max 100000\n")
    for folders, quota in (([new], 1.5), ([old], 0.5), ([free], "none"), ([none], None), ([free, new, old], 0.5)):
        monkeypatch.setattr(chip, "_cgroup_folders", lambda folders=folders: folders)
        assert chip._quota() == quota
    monkeypatch.setattr(chip, "_cgroup_folders", lambda: [none, new])
    assert chip.throttled_periods() == 3


def test_throttling_is_a_difference_between_two_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    import referee.device.provenance as module

    readings = iter([4, 4, 4, 5])
    monkeypatch.setattr(module, "throttled_periods", lambda: next(readings))
    assert read(before=mark_machine()).machine_state["throttled"] is False
    assert read(before=mark_machine()).machine_state["throttled"] is True
    monkeypatch.setattr(module, "throttled_periods", lambda: 9)
    assert read().machine_state["throttled"] == NOT_READ  # no mark: nothing to compare with


def test_the_commit_and_the_state_of_the_tree_are_those_of_git(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
        command = ["git", *identity, "-C", str(tmp_path / "clean"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    (tmp_path / "clean").mkdir()
    source = tmp_path / "clean" / "step.py"
    source.write_text("x = 1\n")
    git("init", "-q")
    git("add", "step.py")
    git("commit", "-q", "-m", "one")
    found = read_repository(str(source))
    assert found == {
        "git_commit": git("rev-parse", "HEAD"),
        "git_dirty": False,
        "source_digest": hashlib.sha256(b"x = 1\n").hexdigest()[:16],
    }
    folder = tmp_path / "clean" / "inner"
    folder.mkdir()
    source.write_text("x = 2\n")
    assert read_repository(str(source)) == found, "what runs is what was loaded"
    other = read_repository(str(folder / "other.py"))
    assert other["git_dirty"] is True
    assert "source_digest" not in other, "there is no such file"
    assert read_repository(str(tmp_path / "nowhere" / "x.py")) == {}
    assert read_repository(None) == {}


def test_the_target_and_the_accelerator_are_named() -> None:
    found = read(FakeAsync(), target=Source("step.py:train", None))
    assert found.method["target"] == "step.py:train"
    assert found.accelerator is not None
    assert "virtual" in str(found.accelerator["name"])
    assert read().accelerator is None


def test_a_clock_is_required() -> None:
    with pytest.raises(ProvenanceError, match="clock"):
        collect(FakeSync(), dtype="float32", shapes=(), method={})


def test_a_debugger_is_reported() -> None:
    previous = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        assert "trace function" in str(read().switches["debugger"])
    finally:
        sys.settrace(previous)


def test_environment_switches_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    found = read().switches
    assert found["launch_blocking"] == "CUDA_LAUNCH_BLOCKING=1"
    assert found["allocator"] == "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "0")
    assert read().switches["launch_blocking"] == "off"


@pytest.mark.torch
def test_switches_follow_torch() -> None:
    torch = pytest.importorskip("torch")
    from referee.device.registry import open_device

    cpu = open_device("cpu")
    assert read(cpu).switches["grad_mode"] == "grad"
    assert read(cpu).switches["autocast"] == "off"
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found = read(cpu).switches
    assert (found["grad_mode"], found["autocast"]) == ("no_grad", "cpu bfloat16")
    with torch.inference_mode():
        assert read(cpu).switches["grad_mode"] == "inference_mode"
    assert read(cpu).chip["threads"] == torch.get_num_threads()
    assert read(cpu).software["torch"] == torch.__version__


def test_provenance_loads_no_torch() -> None:
    code = (
        "import sys\n"
        "from referee.device.fake import FakeSync\n"
        "from referee.device.provenance import collect\n"
        "found = collect(FakeSync(), dtype='float32', shapes=(), method={'clock': 'enqueue'})\n"
        "print('torch' in sys.modules, found.software['torch'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"False {NOT_READ}"
