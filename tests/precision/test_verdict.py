"""Which dtype is advised, from which figures; and the whole report, saved, loaded and shown."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from referee.precision.trust import trust_findings
from referee.precision.verdict import DOES_NOT_RUN, judge
from referee.records.precision import ActivationRange, DtypeAnswer, PrecisionTiming

torch = pytest.importorskip("torch")


def row(name: str, answer: str = "base", ratio: float | None = None) -> PrecisionTiming:
    return PrecisionTiming(
        name=name,
        median_ns=1e6,
        ratio=ratio,
        ci_low=None if ratio is None else ratio - 0.01,
        ci_high=None if ratio is None else ratio + 0.01,
        answer=answer,
        casts_ns=None,
        kernel_gain_ns=None,
        loss_error=None,
        output_error=None,
        gradient_error=None,
    )


def advised(*rows: PrecisionTiming, largest: float = 1.0) -> DtypeAnswer:
    activations = (ActivationRange(module="head", largest=largest, headroom=65504 / largest),)
    verdict = judge(timing=(row("float32"), *rows), gradients=None, activations=activations, autocast=None)
    assert len(verdict.lines) == 3
    assert all(line.endswith(".") for line in verdict.lines)
    return verdict.dtype


@pytest.mark.parametrize(
    ("rows", "dtype"),
    [
        ((row("bfloat16", "faster", 0.6), row("float16", "faster", 0.59)), "bfloat16"),
        ((row("bfloat16", "faster", 0.6), row("float16", "faster", 0.5)), "float16"),
        ((row("bfloat16", "slower", 1.4), row("float16", "faster", 0.8)), "float16"),
        ((row("bfloat16", "slower", 1.4), row("float16", "slower", 5.0)), "float32"),
        ((row("bfloat16", "same", 1.0), row("float16", "slower", 5.0)), "float32"),
        ((row("tf32", "faster", 0.5), row("bfloat16", "faster", 0.6)), "tf32"),
        ((row("tf32", "faster", 0.7), row("bfloat16", "faster", 0.6)), "bfloat16"),
        ((row("bfloat16", "cannot-tell"), row("float16", "slower", 5.0)), "cannot-tell"),
        ((row("bfloat16", "cannot-tell"), row("float16", "cannot-tell")), "cannot-tell"),
        ((row("bfloat16", "slower", 1.4), row("float16", "cannot-tell", 12.0)), "float32"),
        ((row("bfloat16", "slower", 1.4), row("float16", "cannot-tell", 1.0)), "cannot-tell"),
        ((row("bfloat16", DOES_NOT_RUN), row("float16", DOES_NOT_RUN)), "float32"),
        ((row("bfloat16", DOES_NOT_RUN), row("float16", "faster", 0.5)), "float16"),
    ],
)
def test_the_dtype_follows_from_the_times(rows: tuple[PrecisionTiming, ...], dtype: str) -> None:
    assert advised(*rows) == dtype


def test_fp16_has_to_beat_whatever_keeps_the_range_by_a_tenth() -> None:
    tf32, half = row("tf32", "faster", 0.4), row("float16", "faster", 0.9)
    assert advised(tf32, half) == "tf32"
    assert advised(tf32, row("float16", "faster", 0.3)) == "float16"
    assert advised(half) == "float16"


def test_fp16_is_never_advised_where_activations_overflow() -> None:
    rows = (row("bfloat16", "slower", 1.4), row("float16", "faster", 0.5))
    assert advised(*rows) == "float16"
    assert advised(*rows, largest=1e5) == "float32"


@pytest.mark.parametrize("error", [{"gradient_error": 500.0}, {"output_error": 1.0}, {"gradient_error": math.nan}])
def test_what_is_further_from_the_exact_answer_than_zeros_is_not_advised(error: dict[str, float]) -> None:
    fast, half = row("bfloat16", "faster", 0.5), row("float16", "slower", 5.0)
    assert advised(replace(fast, gradient_error=0.1, output_error=0.1), half) == "bfloat16"
    assert advised(replace(fast, **error), half) == "float32"
    assert advised(replace(fast, **error), row("float16", "faster", 0.8)) == "float16"
    assert advised(replace(row("bfloat16", "cannot-tell"), **error), half) == "float32"
    verdict = judge(
        timing=(row("float32"), replace(fast, **error), half), gradients=None, activations=(), autocast=None
    )
    assert "bfloat16 is, but its" in verdict.lines[0]
    (found,) = trust_findings((row("float32"), replace(fast, **error), half))
    assert (found.code, found.evidence["precision"]) == ("precision-wrong", "bfloat16")
    # Where float32 itself is as wrong, the figures say nothing about a lower precision.
    assert list(trust_findings((replace(row("float32"), **error), replace(fast, **error)))) == []


def test_the_whole_command_on_the_transformer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from referee.cli.main import main
    from referee.records.schema import load, to_json
    from referee.report.compose import compose
    from referee.report.html import render_html

    example = Path(__file__).resolve().parents[2] / "examples" / "transformer.py"
    saved = tmp_path / "precision.json"
    words = ["precision", f"{example}:train_step", "--batch-size", "2", "--budget", "2s", "--batch-sizes", "0"]
    drawn = tmp_path / "gradients.svg"
    assert main([*words, "--json", str(saved), "--plot", str(drawn), "--no-progress"]) == 0
    assert "fp16 subnormal" in drawn.read_text()
    shown = capsys.readouterr().out
    raw = json.loads(saved.read_text())
    assert raw["schema"] == "referee.precision/1"
    assert {"dtype", "scaler", "reasons"} <= raw["verdict"].keys()
    assert {"ops", "casts"} <= raw["autocast"].keys()
    keys = {"zero_frac", "zero_frac_cast", "subnormal_frac", "overflow_frac", "scale_low", "scale_high"}
    assert keys <= raw["gradients"].keys()
    assert [entry["name"] for entry in raw["timing"]] == ["float32", "bfloat16", "float16"]
    assert raw["autocast"]["casts"] == sum(g["count"] for g in raw["autocast"]["cast_groups"] if g["who"] != "explicit")
    for line in raw["verdict"]["lines"]:
        assert "".join(line.split())[:40] in "".join(shown.split())
    record = load(saved)
    assert json.loads(to_json(record)) == raw
    page = render_html(compose(record))
    assert "fp16 subnormal" in page
    assert "<svg" in page


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--dtype", "int8"], "bf16 and fp16"),
        (["--batch-sizes", "a"], "not batch sizes"),
        (["--budget", "x"], "--budget"),
    ],
)
def test_mistakes_get_one_sentence(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    from referee.cli.main import main

    assert main(["precision", "examples/transformer.py:train_step", *words]) == 2
    assert says in capsys.readouterr().err
