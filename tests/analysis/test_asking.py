"""Operators of a run on the CPU in which the host would wait on a device."""

from __future__ import annotations

from referee.analysis.diagnose import diagnose
from referee.records.finding import Finding
from referee.trace.builder import TraceBuilder

US = 1_000


def told(builder: TraceBuilder) -> list[Finding]:
    return [f for f in diagnose(builder.build()).findings if f.code == "would-wait"]


def test_a_mask_and_a_value_read_are_told_from_a_run_on_the_cpu() -> None:
    """Indexing with a mask is one row of aten::nonzero there; on a device the host waits in it."""
    builder = TraceBuilder().step(0, 0, 900 * US)
    builder.python("model.py(7): keep", 0, 60 * US)
    builder.op("aten::index", 10 * US, 40 * US).op("aten::nonzero", 12 * US, 20 * US)
    builder.op("aten::item", 100 * US, 9 * US).op("aten::_local_scalar_dense", 101 * US, 5 * US)
    builder.op("aten::where", 200 * US, 9 * US)
    (finding,) = told(builder)
    assert finding.evidence == {"waits": 2, "aten::index": 1, "aten::item": 1}
    assert "model.py(7): keep" in finding.message
    assert "torch.where" in finding.hint
    assert ".item()" in finding.hint


def test_counters_of_an_optimizer_and_repeats_by_a_number_ask_nothing() -> None:
    """The counters stay in host memory wherever the parameters are; a number of repeats is known to the host."""
    builder = TraceBuilder().annotation("Optimizer.step#Adam.step", 0, 90 * US)
    builder.op("aten::item", 10 * US, 9 * US).op("aten::_local_scalar_dense", 11 * US, 5 * US)
    builder.op("aten::repeat_interleave", 100 * US, 9 * US)
    assert not told(builder)
    builder.op("aten::repeat_interleave", 200 * US, 19 * US).op("aten::repeat_interleave", 205 * US, 9 * US)
    (finding,) = told(builder)
    assert finding.evidence["waits"] == 1


def test_a_run_on_a_device_shows_its_waits_itself() -> None:
    builder = TraceBuilder().op("aten::nonzero", 0, 50 * US)
    builder.launch("cudaLaunchKernel", 2 * US, 5 * US, correlation=1).kernel("count", 9 * US, 9 * US, correlation=1)
    assert not told(builder)
