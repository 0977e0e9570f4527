"""How well is the gain of torch.compile predicted on this machine? Eight models, three sizes each.

    python benchmarks/remedy_compile.py predict                  # writes predictions.json; nothing compiled is timed
    python benchmarks/remedy_compile.py measure --model mlp      # appends to measured.json, through Referee's compare
    python benchmarks/remedy_compile.py table --docs docs/prediction.md

Both files lie in ``--out``. A prediction is never written again once its model has been measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from remedy_models import MODELS, SIZES

from referee.device.registry import open_device
from referee.remedy.attempt import attempt, first_guess
from referee.remedy.fixes import fix_named
from referee.target import Target, load_target
from referee.units import NS_PER_S

Rows = dict[str, dict[str, Any]]
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
SIGN_FRAC = 0.05
"""Ratios nearer to 1 than this have no sign worth telling."""


def loader(model: str, size: str) -> Callable[[], Target]:
    """Builds the target anew."""
    return lambda: load_target(
        f"{Path(__file__).parent / 'remedy_models.py'}:{MODELS[model].__name__}", params={"size": size}
    )


def predict(out: Path, models: list[str]) -> None:
    """Write the predictions of these models."""
    path = out / "predictions.json"
    rows, measured = _read(path), _read(out / "measured.json")
    device, fix = open_device("cpu"), fix_named("compile")
    assert fix is not None
    for model in models:
        for size in SIZES:
            key = f"{model}/{size}"
            if key in measured:
                print(f"{key}: measured already, its prediction stays")
                continue
            began = time.perf_counter()
            guess = first_guess(fix, loader(model, size), device=device)
            if guess is None:
                raise SystemExit(f"{key}: nothing was predicted")
            rows[key] = {
                "low": guess.low,
                "high": guess.high,
                "ratio": guess.ratio,
                "measure_it": list(guess.measure_it),
                "basis": guess.basis,
                "written": time.strftime("%Y-%m-%dT%H:%M:%S"),
                "took_s": round(time.perf_counter() - began, 1),
            }
            print(
                f"{key}: {guess.ratio:.3f} ({guess.low:.2f} to {guess.high:.2f}), {rows[key]['took_s']} s", flush=True
            )
            path.write_text(json.dumps(rows, indent=1))


def measure(out: Path, models: list[str], sizes: list[str], budget_s: float) -> None:
    """Measure these models; each must have been predicted before."""
    predictions = _read(out / "predictions.json")
    path = out / "measured.json"
    rows = _read(path)
    device, fix = open_device("cpu"), fix_named("compile")
    assert fix is not None
    for model in models:
        for size in sizes:
            key = f"{model}/{size}"
            if key not in predictions:
                raise SystemExit(f"{key} was not predicted: run predict first")
            # Another size of the same code would be compiled for sizes that vary.
            torch.compiler.reset()
            report = attempt(fix, loader(model, size), device=device, budget_ns=round(budget_s * NS_PER_S))
            tried = report.fixes[0]
            rows[key] = {
                "ratio": tried.measured_ratio,
                "ci_low": tried.ci_low,
                "ci_high": tried.ci_high,
                "answer": tried.answer,
                "eager_ns": tried.eager_ns,
                "outputs_match": tried.outputs_match,
                "why_not": tried.why_not,
                "written": time.strftime("%Y-%m-%dT%H:%M:%S"),
                "chip": str(report.provenance.chip.get("model", "not read")),
                "torch": torch.__version__,
            }
            print(f"{key}: {tried.measured_ratio} {tried.answer} {tried.why_not}", flush=True)
            path.write_text(json.dumps(rows, indent=1))


def _read(path: Path) -> Rows:
    return json.loads(path.read_text()) if path.exists() else {}


def table(out: Path, docs: Path | None) -> None:
    """Print the table and its figures beside their limits, and put both into the page."""
    predictions, measured = _read(out / "predictions.json"), _read(out / "measured.json")
    lines = [
        "| model | size | eager | predicted | range | measured | off by | inside | answer |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for key, row in measured.items():
        guess = predictions[key]
        model, size = key.split("/")
        off = guess["ratio"] / row["ratio"] - 1
        inside = guess["low"] <= row["ratio"] <= guess["high"]
        told = f"measure it: {', '.join(guess['measure_it'][:3])}" if guess["measure_it"] else "predicted"
        lines.append(
            f"| {model} | {size} | {row['eager_ns'] / 1000:,.0f} µs | {guess['ratio']:.3f} | "
            f"{guess['low']:.2f} to {guess['high']:.2f} | {row['ratio']:.3f} | {100 * off:+.0f} % | "
            f"{'yes' if inside else '**no**'} | {told} |"
        )
    text = "\n".join([*lines, "", *_verdicts(predictions, measured), "", _provenance(measured)])
    print(text)
    if docs is not None:
        page = docs.read_text()
        before, _, rest = page.partition(BEGIN)
        docs.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")


def _verdicts(predictions: Rows, measured: Rows) -> list[str]:
    errors = {key: abs(predictions[key]["ratio"] / row["ratio"] - 1) for key, row in measured.items()}
    near = [error for key, error in errors.items() if not key.endswith("/large")]
    signs = sum(_same_sign(predictions[key]["ratio"], row["ratio"]) for key, row in measured.items())
    inside = sum(predictions[k]["low"] <= row["ratio"] <= predictions[k]["high"] for k, row in measured.items())
    worst = max(errors, key=lambda key: errors[key])
    return [
        f"- median error, small and middle sizes: {100 * statistics.median(near):.1f} % (limit 20 %)",
        f"- median error, all {len(errors)}: {100 * statistics.median(errors.values()):.1f} % (limit 30 %)",
        f"- sign right: {signs} of {len(errors)} (limit 22 of 24); within {100 * SIGN_FRAC:.0f} % of 1 there is none",
        f"- measured inside the printed range: {inside} of {len(errors)} (limit 20 of 24)",
        f"- worst case: {worst}, predicted {predictions[worst]['ratio']:.3f}, measured {measured[worst]['ratio']:.3f}",
    ]


def _same_sign(predicted: float, measured: float) -> bool:
    near = abs(measured - 1) <= SIGN_FRAC and abs(predicted - 1) <= 2 * SIGN_FRAC
    return near or (predicted < 1) == (measured < 1)


def _provenance(measured: Mapping[str, Mapping[str, Any]]) -> str:
    row = next(iter(measured.values()))
    return (
        f"Measured {row['written'][:10]} on {row['chip']}, one thread, float32, torch {row['torch']}, eager and "
        "compiled interleaved by `referee remedy`; predictions written before."
    )


def main() -> None:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("predict", "measure", "table"))
    parser.add_argument("--out", type=Path, default=Path("remedy-compile"))
    parser.add_argument("--model", action="append", choices=list(MODELS))
    parser.add_argument("--size", action="append", choices=SIZES)
    parser.add_argument("--budget", type=float, default=2.0, help="seconds of interleaved timing per model and size")
    parser.add_argument("--docs", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    models = args.model or list(MODELS)
    if args.what == "predict":
        predict(args.out, models)
    elif args.what == "measure":
        measure(args.out, models, args.size or list(SIZES), args.budget)
    else:
        table(args.out, args.docs)


if __name__ == "__main__":
    main()
