"""The command starts itself again in a fixed place: when, with what, and that it then lies there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from referee.cli.layout import settings, takes_operator


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
def test_only_an_operator_is_timed_in_a_fixed_place(words: list[str], expected: bool) -> None:
    assert takes_operator(words) is expected


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
fix_layout(["anatomy", "aten.add.Tensor"])
print(open("/proc/self/personality").read().strip(), id(object()), hash("a word"), sorted(
    name for name in os.environ if name in ("PYTHONHASHSEED", "GLIBC_TUNABLES", "REFEREE_LAYOUT")))
"""


@pytest.mark.skipif(sys.platform != "linux" or not Path("/proc/self/personality").exists(), reason="Linux alone")
def test_two_processes_lie_in_the_same_place_and_hand_nothing_on() -> None:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONHASHSEED", "GLIBC_TUNABLES")
    }
    first, second = (
        subprocess.run([sys.executable, "-c", _SHOWS], capture_output=True, text=True, env=environment, check=True)
        for _ in range(2)
    )
    if not int(first.stdout.split()[0], 16) & 0x0040000:
        pytest.skip("this system does not let a process fix its addresses")
    assert first.stdout == second.stdout
    assert first.stdout.strip().endswith("[]")


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
