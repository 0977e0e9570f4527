"""Every command that the documentation shows is one that the command line takes, on files that are there."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from pathlib import Path

import pytest

from referee.cli.main import COMMANDS, build_parser, split_at_dashes

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*.py")),
]
SHOWN = re.compile(r"^(?:\$ |    )(?:[A-Z_]+=\S+ )*(referee [a-z].*)$", re.MULTILINE)
INLINE = re.compile(r"`(referee [a-z][^`]*)`")


def shown() -> list[tuple[str, str]]:
    return [(page.name, line) for page in PAGES for line in SHOWN.findall(page.read_text())]


def test_commands_are_shown() -> None:
    assert len({line.split()[1] for _, line in shown()}) >= 7


@pytest.mark.parametrize(("page", "line"), shown())
def test_a_command_that_is_shown_is_taken_as_it_stands(page: str, line: str) -> None:
    words, _ = split_at_dashes(shlex.split(line.partition(" | ")[0], comments=True)[1:])
    args = build_parser(words[0]).parse_args(words)
    for word in words:
        file, colon, name = word.partition(":")
        if colon and file.startswith("examples/"):
            tree = ast.parse((ROOT / file).read_text())
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert args.command == words[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_an_option_named_in_the_text_is_one_of_its_command(page: Path) -> None:
    for line in INLINE.findall(page.read_text()):
        command = line.split()[1]
        assert command in COMMANDS, line
        words, _ = split_at_dashes(line.split())
        unknown = {word for word in words if word.startswith("--")} - _options(command) - {"--"}
        assert not unknown, line


def _options(command: str) -> set[str]:
    parser = build_parser(command)
    (subparsers,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return {option for action in subparsers.choices[command]._actions for option in action.option_strings}
