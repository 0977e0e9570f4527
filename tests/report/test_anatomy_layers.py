"""A layer is known as well as its stages are: what cannot be told from nothing has a bound, and no share."""

from __future__ import annotations

from dataclasses import replace

from referee.records.anatomy import Stage
from referee.report.anatomy import layer_sums
from referee.report.compose import compose
from referee.report.text import render_text

from .anatomy_samples import ANATOMY


def _stage(name: str, layer: str, ns: float, half_ns: float) -> Stage:
    return Stage(name=name, layer=layer, ns=ns, cold_ns=None, ci_low_ns=ns - half_ns, ci_high_ns=ns + half_ns)


STAGES = (
    _stage("keys", "dispatch", -30_000.0, 40_000.0),
    _stage("AutogradCPU", "dispatch", -11_000.0, 30_000.0),
    _stage("lock", "binding and argument parsing", 44.0, 1.0),
    _stage("matmul", "kernel or launch", 20_000_000.0, 90_000.0),
)


def _lines() -> dict[str, str]:
    anatomy = replace(ANATOMY, stages=STAGES, whole_ns=20_000_000.0)
    text = render_text(compose(anatomy), width=100, color=False)
    body = text.split("Share of the whole call")[1].split("Stages")[0]
    return {layer: line for line in body.splitlines() for layer in layer_sums(STAGES) if line.strip().startswith(layer)}


def test_the_intervals_of_a_layers_stages_add_in_quadrature() -> None:
    dispatch = layer_sums(STAGES)["dispatch"]
    assert (dispatch.ns, dispatch.low_ns, dispatch.high_ns) == (-41_000.0, -91_000.0, 9_000.0)


def test_a_layer_that_cannot_be_told_from_nothing_has_a_bound() -> None:
    lines = _lines()
    assert lines["dispatch"].rstrip().endswith("< 91.0 µs")
    assert lines["binding and argument parsing"].rstrip().endswith("< 50 ns")
    assert "%" not in lines["dispatch"] + lines["binding and argument parsing"]
    assert "20.0 ms, 100 %" in lines["kernel or launch"]
