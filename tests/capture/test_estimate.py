"""The size of a capture that has not been taken: the arithmetic exactly, and a real probe against the real files."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from referee.capture import Plan, capture
from referee.capture.estimate import SizeModel, estimate_capture, free_memory_bytes, probe_size
from referee.device.registry import open_device
from referee.errors import OptionError
from referee.records.capture import CaptureOptions

torch = pytest.importorskip("torch")

MB = 1024**2


def model(**given: Any) -> SizeModel:
    base: dict[str, Any] = {"options": CaptureOptions(), "held_bytes_per_step": 0.0}
    base |= {"events_per_step": 1000.0, "raw_bytes_per_step": 250_000.0, "file_bytes_per_step": 25_000.0}
    return SizeModel(**{**base, "fixed_events": 10.0, "fixed_raw_bytes": 3000.0, "fixed_file_bytes": 300.0, **given})


def test_sizes_add_up_over_the_plan() -> None:
    found = estimate_capture(Plan.of(wait=1, warmup=1, active=3, repeat=2), iterations=None, model=model())
    assert (found.files, found.recorded) == (2, 6)
    assert (found.events, found.raw_bytes, found.file_bytes) == (6020, 1_506_000, 150_600)
    assert found.memory_bytes == 3010 * 2000 + 753_000
    assert found.findings == ()


def test_a_short_run_is_estimated_as_it_would_be_recorded() -> None:
    found = estimate_capture(Plan.of(wait=1, warmup=1, active=3), iterations=4, model=model())
    assert (found.files, found.recorded) == (1, 2)


def test_shapes_hold_what_a_step_allocates() -> None:
    with_shapes = model(options=CaptureOptions(shapes=True), held_bytes_per_step=50 * MB)
    found = estimate_capture(Plan.of(active=4), iterations=None, model=with_shapes)
    assert found.memory_bytes == 4010 * 3600 + 1_003_000 + 4 * 50 * MB


def test_five_steps_of_four_gigabytes_are_refused_with_the_mend() -> None:
    """Five steps of a large model, stacks on: 4 GB that no viewer opens."""
    large = model(
        options=CaptureOptions(stacks=True, memory=True), events_per_step=3e6, raw_bytes_per_step=800e6,
        file_bytes_per_step=60e6,
    )  # fmt: skip
    (finding,) = estimate_capture(Plan.of(active=5), iterations=None, model=large).findings
    assert finding.code == "large-capture"
    assert finding.message.startswith("The planned capture holds about 15,000,010 events: 3.73 GiB of JSON")
    assert finding.hint == "Take active=1, without stacks, memory."


def test_a_middling_plan_is_cut_to_what_fits() -> None:
    (finding,) = estimate_capture(
        Plan.of(active=20), iterations=None, model=model(raw_bytes_per_step=20 * MB, fixed_raw_bytes=0)
    ).findings
    assert finding.hint == "Take active=5."


def test_memory_that_is_not_there_is_a_finding() -> None:
    held = model(options=CaptureOptions(shapes=True), held_bytes_per_step=100 * MB)
    plan = Plan.of(active=4)
    assert estimate_capture(plan, iterations=None, model=held, available_bytes=1024 * MB).findings == ()
    (finding,) = estimate_capture(plan, iterations=None, model=held, available_bytes=600 * MB).findings
    assert finding.hint == "Take active=2, without shapes."


def test_a_plan_that_records_nothing_is_refused() -> None:
    with pytest.raises(OptionError):
        estimate_capture(Plan.of(wait=5), iterations=2, model=model())


@pytest.mark.parametrize("options", [CaptureOptions(), CaptureOptions(shapes=True), CaptureOptions(stacks=True)])
def test_a_probe_foretells_the_real_files(tmp_path: Path, options: CaptureOptions) -> None:
    layers = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(20)))
    inputs = torch.randn(4, 8)
    plan = Plan.of(wait=0, warmup=1, active=10, repeat=2)

    def step() -> Any:
        return layers(inputs)

    device = open_device("cpu")
    foretold = estimate_capture(plan, iterations=None, model=probe_size(step, device=device, options=options))
    record = capture(
        step, device=device, dtype="float32", shapes=(), out_dir=tmp_path, name="t", plan=plan, options=options,
        timing_budget_ns=0, calibrate=False,
    )  # fmt: skip
    events = sum(file.integrity.events for file in record.files if file.integrity is not None)
    raw = sum(len(gzip.decompress(Path(file.path).read_bytes())) for file in record.files)
    packed = sum(file.size_bytes for file in record.files)
    assert foretold.files == len(record.files)
    assert foretold.events == pytest.approx(events, rel=0.1)
    assert foretold.raw_bytes == pytest.approx(raw, rel=0.1)
    # Ten steps compress better than three: the estimate errs to the large side.
    assert packed * 0.9 <= foretold.file_bytes <= packed * 2


def test_with_shapes_a_probe_counts_the_operands() -> None:
    def step() -> Any:
        return torch.empty(1 << 18).fill_(1.0) + 1

    found = probe_size(step, device=open_device("cpu"), options=CaptureOptions(shapes=True))
    # Two tensors of 1 MiB, and the scalars that are wrapped for the addition.
    assert 0 <= found.held_bytes_per_step - 2 * (1 << 20) < 1024


def test_free_memory_is_read_or_unknown() -> None:
    free = free_memory_bytes()
    assert free is None or free > 0
