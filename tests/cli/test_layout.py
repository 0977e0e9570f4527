"""The command starts itself again in a fixed place: when, with what, and that it then lies there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from referee.cli.layout import fix_layout, is_whole_program, settings, takes_operator, wanted_layout
from referee.cli.main import main
from referee.errors import CannotTell


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["anatomy", "aten.add.Tensor"], True),
        (["anatomy", "aten::add.Tensor", "--device", "cuda:0"], True),
        (["anatomy", "--shape", "4x4", "mylib::op"], True),
        (["anatomy", "steps.py:train"], False),
        (["anatomy", "package.module:train"], False),
        (["bench", "aten.add.Tensor"], False),
        ([], False),
    ],
)
def test_only_an_operator_gets_hashing_and_pages_of_its_own(words: list[str], expected: bool) -> None:
    assert takes_operator(words) is expected
    assert ("PYTHONHASHSEED" in settings({}, words)) is expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["anatomy", "aten.add.Tensor"], "fixed"),
        (["anatomy", "steps.py:train"], None),
        (["bench", "steps.py:train"], "fixed"),
        (["bench", "steps.py:train", "--layout", "random"], "random"),
        (["bench", "--layout=random", "steps.py:train"], "random"),
        (["bench", "--lay=random", "steps.py:train"], "random"),
        (["bench", "--lay", "random", "steps.py:train"], "random"),
        (["bench", "steps.py:train", "--pr"], "fixed"),
        (["sweep", "steps.py:train", "--re=out.html"], "fixed"),
        (["bench", "--layout", "random", "steps.py:train", "--layout", "fixed"], "fixed"),
        (["bench", "steps.py:train", "--layout"], "fixed"),
        (["sweep", "steps.py:train", "--values", "1,2"], "fixed"),
        (["verify", "result.json"], "fixed"),
        (["compare", "a.py:f", "b.py:f"], "fixed"),
        (["compare", "a.py:f", "b.py:f", "--processes", "5"], None),
        (["compare", "a.py:f", "b.py:f", "--proc=5"], None),
        (["compare", "a.py:f", "--revisions", "HEAD~1", "HEAD"], None),
        (["trace", "t.json"], None),
        (["--version"], None),
        ([], None),
    ],
)
def test_what_is_measured_here_lies_in_a_fixed_place_unless_told_otherwise(
    words: list[str], expected: str | None
) -> None:
    assert wanted_layout(words) == expected


def test_what_the_user_has_set_stays_and_large_tensors_keep_their_pages() -> None:
    small = settings({"PYTHONHASHSEED": "7"}, ["anatomy", "aten.mm", "--shape", "64x64"])
    assert small["PYTHONHASHSEED"] == "7"
    assert "GLIBC_TUNABLES" in small
    assert small["REFEREE_LAYOUT"] == "GLIBC_TUNABLES"
    for shape in (["--shape", "1024x1024"], ["--shape=1024,1024"]):
        assert "GLIBC_TUNABLES" not in settings({}, ["anatomy", "aten.mm", *shape])


_SHOWS = """
import os, sys
from referee.cli.layout import fix_layout
if sys.argv[-1] == "traced":
    sys.settrace(lambda *_: None)
print("begins", flush=True)
fix_layout(sys.argv[1:])
print(open("/proc/self/personality").read().strip(), id(object()), hash("a word"), sorted(
    name for name in os.environ if name in ("PYTHONHASHSEED", "GLIBC_TUNABLES", "REFEREE_LAYOUT")))
"""


linux_alone = pytest.mark.skipif(
    sys.platform != "linux" or not Path("/proc/self/personality").exists(), reason="Linux alone"
)


def start(program: Path, *words: str) -> list[str]:
    """The lines that the program prints, started with the environment as it is but for what may be set anew."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONHASHSEED", "GLIBC_TUNABLES")
    }
    words = (sys.executable, str(program), *words)
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=True)
    return done.stdout.splitlines()


@linux_alone
def test_two_processes_lie_in_the_same_place_and_hand_nothing_on(tmp_path: Path) -> None:
    program = tmp_path / "referee"
    program.write_text(_SHOWS)
    first, second = (start(program, "anatomy", "aten.add.Tensor") for _ in range(2))
    if not int(first[-1].split()[0], 16) & 0x0040000:
        pytest.skip("this system does not let a process fix its addresses")
    assert first == second
    assert first[-1].endswith("[]")
    assert first.count("begins") == 2


@linux_alone
@pytest.mark.parametrize(("name", "more"), [("my_script.py", []), ("referee", ["traced"])])
def test_what_is_more_than_the_command_is_not_started_again(tmp_path: Path, name: str, more: list[str]) -> None:
    """A script that calls it has done things before; a debugger would lose what it follows."""
    program = tmp_path / name
    program.write_text(_SHOWS)
    assert start(program, "anatomy", "aten.add.Tensor", *more).count("begins") == 1


@pytest.mark.parametrize(
    ("started", "whole"),
    [
        (["python", "-m", "referee", "bench", "a.py:f"], True),
        (["python", "-X", "utf8", "-W", "error", "-mreferee", "bench", "a.py:f"], True),
        (["python", "/usr/bin/referee", "bench", "a.py:f"], True),
        (["python", "-m", "cProfile", "-m", "referee", "bench", "a.py:f"], True),
        (["python", "my.py", "bench", "a.py:f"], False),
        (["python", "/usr/bin/referee"], False),
        (["python", "-c", "entry()"], False),
        (["python"], False),
        ([], False),
    ],
)
def test_only_the_command_itself_is_started_again(
    started: list[str], whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "orig_argv", started)
    assert is_whole_program(["bench", "a.py:f"]) == whole


def test_a_process_that_cannot_be_started_again_lies_where_it_lay(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(layout: str) -> bool:
        asked.append(layout)
        return True

    def refuse(*_: object) -> None:
        raise PermissionError

    words = ["bench", "a.py:f"]
    monkeypatch.setattr("referee.cli.layout.ask_for_layout", ask)
    monkeypatch.setattr("referee.cli.layout._is_watched", lambda: False)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "referee", *words])
    monkeypatch.setattr(os, "execve", refuse)
    fix_layout(words)
    assert asked == ["fixed", "random"]


@linux_alone
def test_the_record_says_where_the_process_lay_and_children_draw_their_own(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    step = tmp_path / "steps.py"
    step.write_text("import torch\nX = torch.ones(4)\n\ndef step():\n    return X + X\n")

    def layouts(command: str, *words: str) -> set[object]:
        out = tmp_path / "out.json"
        words = (command, f"{step}:step", *words, "--budget", "100ms", "--no-progress", "--json", str(out))
        done = subprocess.run([sys.executable, "-m", "referee", *words], capture_output=True, text=True)
        assert done.returncode in (0, CannotTell.exit_status), done.stderr
        record = json.loads(out.read_text())
        found = [record, *record.get("sides", [])]
        return {one["provenance"]["method"].get("address_layout") for one in found if "provenance" in one}

    assert layouts("bench", "--layout", "random") == {"random"}
    if layouts("bench") != {"fixed"}:
        pytest.skip("this system does not let a process fix its addresses")
    assert layouts("compare", f"{step}:step") == {"fixed"}
    assert layouts("compare", f"{step}:step", "--processes", "4") == {"random"}


def test_addresses_that_are_not_to_be_had_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("referee.device.layout.address_layout", lambda: "random")
    assert main(["bench", "--stmt", "1 + 1", "--layout", "fixed"]) == 2
    assert "--layout fixed is not to be had" in capsys.readouterr().err


_LOADS = """
import gc
from referee.cli.layout import load_torch_once
load_torch_once()
first = gc.get_freeze_count()
made = [[]]
load_torch_once()
print(gc.isenabled(), first > 10_000, gc.get_freeze_count() <= first)
"""


def test_torch_is_loaded_out_of_the_collectors_sight_and_what_comes_later_is_not() -> None:
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-c", _LOADS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True"]
