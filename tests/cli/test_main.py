"""The command line as a whole: help, statuses, and the one sentence for each mistake."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from referee.cli.main import COMMANDS, main
from referee.cli.trace import parse_range
from referee.errors import OptionError


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "referee", *words], capture_output=True, text=True, timeout=120, check=False
    )


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    for command in COMMANDS:
        assert command in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert "--json" in capsys.readouterr().out


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from referee.cli.main import build_parser; build_parser().format_help();"
        "import referee; print([m for m in ('torch','numpy','msgspec','rich','polars','pandas','matplotlib')"
        " if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nonsense"], "invalid choice"),
        (["trace"], "PATH"),
        (["trace", "--range", "5ms", "x.json"], "--range"),
        (["trace", "x.json", "--report", "x.pdf"], ".html"),
        (["trace", "x.json", "--json", "no/such/folder/x.json"], "no directory"),
        (["bench"], "target"),
        (["bench", "x.py:f", "--batch-size", "0"], "above 0"),
        (["bench", "--stmt", "1", "--budget", "-1"], "--budget"),
        (["bench", "x.py:f", "--param", "7"], "NAME=VALUE"),
    ],
)
def test_mistakes_get_one_sentence(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert captured.err.startswith("referee: ")
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err


def test_range_is_read() -> None:
    assert parse_range("10ms..25ms") == (10_000_000, 25_000_000)
    assert parse_range("1us:2us") == (1_000, 2_000)
    assert parse_range(None) is None
    with pytest.raises(OptionError, match="empty"):
        parse_range("2ms..1ms")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_fault_and_what_goes_to_a_file_is_written(tmp_path: Path, closed: str) -> None:
    out = tmp_path / "env.json"
    words = shlex.join([sys.executable, "-m", "referee", "env", "--json", str(out)])
    done = subprocess.run(f"{words} {closed}", shell=True, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert json.loads(out.read_text())


def test_modules_of_the_users_named_like_the_standard_librarys_do_not_come_first(tmp_path: Path) -> None:
    for name in ("random", "queue", "statistics", "json"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('the wrong one')\n")
    words = [sys.executable, "-m", "referee", "trace", "--help"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([*words[:3], "trace", "none.json"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "none.json" in done.stderr


def test_a_working_directory_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    gone = tmp_path / "gone"
    gone.mkdir()
    words = shlex.join([sys.executable, "-m", "referee", "bench", "--stmt", "1 + 1"])
    done = subprocess.run(f"rmdir {gone}; {words}", shell=True, cwd=gone, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "referee: The working directory has been deleted. Change to one that exists.\n"


def test_json_stands_alone_whatever_libraries_and_children_write_past_python(tmp_path: Path) -> None:
    """``ONEDNN_VERBOSE`` and ``os.system`` write to the descriptor: the processes of a comparison are read from it."""
    pytest.importorskip("torch")
    setup = "import os; os.system('echo from a child'); os.write(1, b'past Python')"
    done = run("bench", "--stmt", "1 + 1", "--setup", setup, "--budget", "30ms", "--json", "-", "--no-progress")
    assert done.returncode == 0
    assert json.loads(done.stdout)["schema"] == "referee.measurement/1"
    assert "from a child" in done.stderr
    assert "past Python" in done.stderr


@pytest.mark.parametrize(
    "setup",
    [
        "import sys; sys.stdout.close()",
        "import sys\nclass Log:\n    write, flush = sys.stdout.write, sys.stdout.flush\nsys.stdout = Log()",
    ],
)
def test_the_answer_is_shown_whatever_the_users_code_does_to_standard_output(setup: str) -> None:
    pytest.importorskip("torch")
    done = run("bench", "--stmt", "1 + 1", "--setup", setup, "--budget", "30ms", "--no-progress")
    assert (done.returncode, "per call" in done.stdout or "No headline" in done.stdout) == (0, True)
    assert "Traceback" not in done.stderr
