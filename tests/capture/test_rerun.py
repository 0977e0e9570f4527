"""Two captures of one name in one folder: the later replaces the earlier as a whole, and nothing else."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from referee.capture import Plan
from referee.capture.export import ENDING, Place
from referee.capture.torch_window import TorchWindow
from referee.errors import StepError, UserError
from referee.records.provenance_file import SUFFIX

from .taking import add_step, steps_in, take

pytest.importorskip("torch")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(ENDING))


def test_a_capture_replaces_the_one_of_the_same_name_as_a_whole_and_says_so(tmp_path: Path) -> None:
    take(add_step(), tmp_path, plan=Plan.of(repeat=3))
    (tmp_path / "t.other.0.pt.trace.json.gz").write_bytes(b"somebody else's")
    record = take(add_step(), tmp_path, plan=Plan.of(active=1))
    assert names(tmp_path) == ["t.0.pt.trace.json.gz", "t.other.0.pt.trace.json.gz"]
    assert steps_in(tmp_path / "t.0.pt.trace.json.gz") == [2]
    (said,) = record.findings
    assert said.code == "capture-replaced"
    assert said.message == f"An earlier capture of this name in {tmp_path} was replaced (3 traces)."


def test_what_a_killed_capture_left_half_written_is_cleared(tmp_path: Path) -> None:
    for name in (".t.abc.partial", ".t.abc.partial.tmp", ".t.capture.json.abc", ".u.abc.partial"):
        (tmp_path / name).write_text("")
    Place(folder=tmp_path, name="t").prepare()
    assert [path.name for path in tmp_path.iterdir()] == [".u.abc.partial"]


def test_a_capture_that_records_nothing_replaces_nothing(tmp_path: Path) -> None:
    kept = take(add_step(), tmp_path, plan=Plan.of(repeat=2))

    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(StepError):
        take(fails, tmp_path)
    assert names(tmp_path) == [Path(file.path).name for file in kept.files]
    assert (tmp_path / "t.capture.json").exists()


def test_a_trace_that_cannot_be_written_replaces_nothing_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = take(add_step(), tmp_path, plan=Plan.of(repeat=2))
    before = sorted(path.name for path in tmp_path.iterdir())

    def export(self: TorchWindow, path: Path) -> None:
        Path(f"{path}.tmp").write_text("as far as the disk went")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(TorchWindow, "export", export)
    with pytest.raises(UserError, match="cannot be written: No space left on device"):
        take(add_step(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert [steps_in(file.path) for file in kept.files] == [list(file.iterations) for file in kept.files]


@pytest.mark.parametrize("number", [0, 7])
def test_a_trace_that_is_not_ours_is_neither_replaced_nor_mixed_with(tmp_path: Path, number: int) -> None:
    theirs = tmp_path / f"t.{number}.pt.trace.json.gz"
    theirs.write_bytes(b"somebody else's")
    with pytest.raises(UserError, match="no provenance beside it"):
        take(add_step(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [theirs.name]


@pytest.mark.parametrize(
    ("place", "left"),
    [
        (Place(folder=Path(), name="t"), ["u.0", "t.x.0"]),
        (Place(folder=Path(), name="t", rank=0, world_size=2), ["t.rank1.0", "u.0", "t.x.0"]),
        (Place(folder=Path(), name="t", rank=1, world_size=2), ["t.0", "t.rank0.0", "t.rank2.0", "u.0", "t.x.0"]),
    ],
    ids=["no job", "rank 0 of 2", "rank 1 of 2"],
)
def test_ranks_that_a_job_no_longer_has_go_with_its_first(tmp_path: Path, place: Place, left: list[str]) -> None:
    from dataclasses import replace

    for stem in ("t.0", "t.rank0.0", "t.rank1.0", "t.rank2.0", "u.0", "t.x.0"):
        for path in (tmp_path / (stem + ENDING), tmp_path / (stem + ENDING + SUFFIX)):
            path.write_bytes(b"")
    assert replace(place, folder=tmp_path).clear() == 6 - len(left)
    assert names(tmp_path) == sorted(stem + ENDING for stem in left)
