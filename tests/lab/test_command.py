"""``referee lab``: which words are claims and which are traces, and what is refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from referee.cli.main import main
from referee.lab.claims import BY_ID, METHODS
from referee.records.lab import LabReport
from referee.records.schema import load
from referee.report.compose import compose
from referee.report.text import render_text
from referee.trace.builder import TraceBuilder

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def trace_text() -> bytes:
    builder = TraceBuilder()
    builder.device_properties("A made chip", sm_count=4)
    for number in range(1, 21):
        builder.launch("cudaLaunchKernel", number * 100_000, 5_000, correlation=number)
        builder.kernel("vectorized_elementwise_kernel", number * 100_000 + 6_000, 3_000, correlation=number)
    return builder.to_json()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.json").write_bytes(trace_text())
    (tmp_path / "notes.md").write_text("# no trace\n")
    return tmp_path


def lab(folder: Path, *words: str) -> LabReport:
    assert main(["lab", *words, "--no-progress", "--json", str(folder / "out.json")]) == 0
    found = load(folder / "out.json")
    assert isinstance(found, LabReport)
    return found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--trace", "nope.gz", "M2"], "nope.gz does not exist."),
        (["M2", "--trace", "nope.gz"], "nope.gz does not exist."),
        (["M2", "--trace", "good.json", "nope.gz"], "nope.gz does not exist."),
        (["--trace", "Q9", "M2"], "Q9 does not exist."),
        (["--trace", "notes.md", "M2"], "notes.md"),
        (["M2", "--trace", "*.none"], "*.none"),
        (["Z9", "--list"], "Z9 is no claim."),
        (["--list", "--trace", "nope.gz"], "nope.gz does not exist."),
        (["M9", "--html", "page.pdf"], "page.pdf"),
        (["M9", "--html", "-"], "--html -"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_mistake_is_one_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", *words, "--no-progress"]) == 2
    seen = capsys.readouterr()
    assert said in seen.err
    assert seen.out == ""


def test_a_claim_behind_the_traces_is_a_claim(folder: Path) -> None:
    found = lab(folder, "--trace", "good.json", "m6")
    assert [(row.id, row.basis, row.sources) for row in found.rows] == [("M6", "recorded", ("good.json",))]


def test_a_file_that_cannot_be_read_among_others_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = lab(folder, "M6", "--trace", "notes.md", "good.json")
    assert [finding.code for finding in found.findings] == ["unreadable"]
    assert "notes.md" in capsys.readouterr().out
    assert found.rows[0].sources == ("good.json",)


def test_a_trace_that_ends_in_the_middle_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = trace_text()
    (folder / "cut.json").write_bytes(text[: len(text) * 2 // 3])
    found = lab(folder, "M6", "--trace", "cut.json", "good.json")
    assert [finding.code for finding in found.findings] == ["truncated"]
    assert "cut.json" in found.findings[0].message
    assert "cut.json" in capsys.readouterr().out


def test_the_page_names_every_trace_its_chip_and_the_command(folder: Path) -> None:
    found = lab(folder, "M6", "--trace", "good.json")
    assert found.command == "referee lab M6 --trace good.json"
    assert [(trace.name, trace.chips) for trace in found.traces] == [("good.json", ("A made chip",))]
    text = " ".join(render_text(compose(found), width=120, color=False).split())
    assert "A made chip" in text
    assert "referee lab M6 --trace good.json" in text
    assert "1 row from 1 recorded trace" in text
    assert "none took part" not in text


def test_without_traces_no_accelerator_took_part(folder: Path) -> None:
    text = render_text(compose(lab(folder, "M9")), width=120, color=False)
    assert "none took part" in text
    assert "recorded trace" not in text


def test_the_list_as_json_is_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "e1", "M2", "--list", "--json", "-"]) == 0
    listed = json.loads(capsys.readouterr().out)["claims"]
    assert [claim["id"] for claim in listed] == ["M2", "E1"]
    assert listed[1]["claimed"] == BY_ID["E1"].claimed
    assert listed[1]["how"] == METHODS["E1"].how
