"""Peaks, costs of operators, roofs and limits, and how full the device was."""

from __future__ import annotations

from pathlib import Path

import pytest

from referee.analysis.diagnose import diagnose
from referee.analysis.opcost import broadcast, cost_of
from referee.records.peaks import find_peak
from referee.records.trace_report import TraceReport
from referee.trace.builder import TraceBuilder
from referee.trace.details import Operator
from referee.trace.reader import read_trace

US = 1_000


def report_of(builder: TraceBuilder, folder: Path) -> TraceReport:
    """Arguments of rows are read from a file, so the trace is written first."""
    path = folder / "made.json"
    path.write_bytes(builder.to_json())
    return diagnose(read_trace(path))


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-PCIE-40GB", "A100 40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("AMD Instinct MI300X VF", "MI300X"),
        ("NVIDIA GeForce RTX 3060 Ti", "RTX 3060 Ti"),
        ("NVIDIA A10", "A10"),
        ("SyntheticGPU", None),
        ("", None),
    ],
)
def test_peaks_are_found_by_whole_words_of_the_name(name: str, product: str | None) -> None:
    peak = find_peak(name)
    assert (peak.product if peak else None) == product


def test_the_peak_is_the_dense_one() -> None:
    peak = find_peak("NVIDIA H100 80GB HBM3")
    assert peak is not None
    assert peak.flop_per_s("bfloat16") == pytest.approx(989.4e12)


def test_what_nothing_exceeds_grows_as_the_format_shrinks() -> None:
    peak = find_peak("NVIDIA H100 80GB HBM3")
    assert peak is not None
    rates = [peak.most_flop_per_s(name) for name in ("float32", "bfloat16", "float8_e4m3fn", "float4_e2m1fn_x2")]
    assert rates == [pytest.approx(tera * 1e12) for tera in (494.7, 989.4, 1978.9, 3957.8)]
    assert peak.most_flop_per_s("float32", autocast=True) == rates[1]
    older = find_peak("Tesla T4")
    assert older is not None
    assert older.most_flop_per_s("int8") == 2 * older.most_flop_per_s("float16")


@pytest.mark.parametrize(
    ("name", "dims", "types", "flops", "size_bytes"),
    [
        ("aten::mm", ((4, 8), (8, 2)), ("float", "float"), 2 * 4 * 8 * 2, 4 * (32 + 16 + 8)),
        (
            "aten::addmm",
            ((2,), (4, 8), (8, 2), (), ()),
            ("c10::Half",) * 3 + ("Scalar",) * 2,
            128,
            2 * (2 + 32 + 16 + 8),
        ),
        ("aten::bmm", ((3, 4, 8), (3, 8, 2)), ("float", "float"), 384, 4 * 3 * (32 + 16 + 8)),
        ("aten::linear", ((5, 4, 8), (2, 8)), ("float", "float"), 2 * 20 * 2 * 8, 4 * (160 + 16 + 40)),
        ("aten::add", ((4, 1), (1, 8), ()), ("float", "float", "Scalar"), 32, 4 * (4 + 8 + 32)),
        ("aten::relu", ((4, 8),), ("c10::BFloat16",), 32, 2 * 64),
    ],
)
def test_costs_follow_from_shapes(
    name: str, dims: tuple[tuple[int, ...], ...], types: tuple[str, ...], flops: int, size_bytes: int
) -> None:
    cost = cost_of(name, Operator(dims=dims, types=types))
    assert cost is not None
    assert (cost.flops, cost.size_bytes) == (flops, size_bytes)


@pytest.mark.parametrize(
    ("name", "dims", "types"),
    [
        ("aten::convolution", ((1, 3, 8, 8), (4, 3, 3, 3)), ("float", "float")),
        ("aten::mm", ((4, 8), (7, 2)), ("float", "float")),
        ("aten::add", ((4,), (3,)), ("float", "float")),
        ("aten::mm", ((4, 8), (8, 2)), ()),
        ("aten::sum", ((4, 8),), ("float",)),
    ],
)
def test_no_cost_is_better_than_a_guess(name: str, dims: tuple[tuple[int, ...], ...], types: tuple[str, ...]) -> None:
    assert cost_of(name, Operator(dims=dims, types=types)) is None


def test_shapes_broadcast_as_torch_does() -> None:
    assert broadcast([(4, 1), (3,)]) == (4, 3)
    assert broadcast([(2, 3), (4,)]) is None
    assert broadcast([(), (5,)]) == (5,)


def matmul(size: int, duration_us: int, *, grid: int) -> TraceBuilder:
    builder = TraceBuilder().device_properties("NVIDIA A100-SXM4-80GB", sm_count=108, maxThreadsPerMultiprocessor=2048)
    dims = {"Input Dims": [[size, size], [size, size]], "Input type": ["c10::Half", "c10::Half"]}
    for number in (1, 2):
        at = number * 2 * duration_us * US
        builder.op("aten::mm", at, 20 * US, **dims)
        builder.launch("cudaLaunchKernel", at + 5 * US, 5 * US, correlation=number)
        shape = {"grid": [grid, 1, 1], "block": [256, 1, 1]}
        builder.kernel("gemm", at + 12 * US, duration_us * US, correlation=number, **shape)
    return builder


def test_a_matrix_product_at_its_peak(tmp_path: Path) -> None:
    """2 · 4096³ operations in 600 µs are 229 TFLOP/s of 312."""
    (kernel,) = report_of(matmul(4096, 600, grid=1024), tmp_path).top_kernels
    assert (kernel.roof, kernel.limit) == ("compute", "compute")
    assert kernel.of_roof_frac == pytest.approx(2 * 4096**3 / 600e-6 / 312e12)
    # 8 blocks of 256 threads fit on a multiprocessor: 1024 blocks are 1.19 waves of 864, so 41 % of two are empty.
    assert kernel.blocks_per_sm == pytest.approx(1024 / 108)
    assert kernel.tail_frac == pytest.approx(1 - 1024 / 864 / 2)


def test_a_grid_that_does_not_fill_the_device_is_limited_by_latency(tmp_path: Path) -> None:
    report = report_of(matmul(4096, 600, grid=54), tmp_path)
    assert report.top_kernels[0].limit == "latency"
    # Half of the multiprocessors have a block for 1,200 of 1,800 µs.
    assert report.utilisation.sm_weighted_frac == pytest.approx(0.5 * 1200 / 1800)
    assert report.utilisation.any_kernel_frac == pytest.approx(1200 / 1800)


def test_kernels_side_by_side_fill_at_most_the_whole_device(tmp_path: Path) -> None:
    builder = TraceBuilder().device_properties("NVIDIA A100-SXM4-80GB", sm_count=100)
    builder.kernel("a", 0, 100 * US, stream=1, grid=[60, 1, 1], block=[64, 1, 1])
    builder.kernel("b", 50 * US, 100 * US, stream=2, grid=[60, 1, 1], block=[64, 1, 1])
    # 0.6 alone for 50 µs twice, and 1 together for 50 µs.
    assert report_of(builder, tmp_path).utilisation.sm_weighted_frac == pytest.approx((0.6 * 100 + 50) / 150)


def test_without_launch_shapes_the_figures_are_null_with_the_reason(tmp_path: Path) -> None:
    builder = TraceBuilder().kernel("a", 0, 10 * US).kernel("b", 20 * US, 10 * US)
    figures = report_of(builder, tmp_path).utilisation
    assert (figures.sm_weighted_frac, figures.useful_frac) == (None, None)
    assert "shapes" in figures.useful_basis


@pytest.mark.traces
def test_a_product_with_too_few_tiles(traces_dir: Path) -> None:
    """170.4 FLOP/B, 31.55 TFLOP/s achieved: 4.5 % of MI300X's ceiling of 708."""
    kernel = diagnose(read_trace(traces_dir / "mi300_gemm_few_tiles.json")).top_kernels[0]
    assert (kernel.roof, kernel.limit) == ("compute", "latency")
    assert kernel.flop_per_byte == pytest.approx(170.4, abs=0.05)
    assert kernel.flop_per_s == pytest.approx(31.55e12, rel=1e-3)
    assert kernel.of_roof_frac == pytest.approx(0.045, abs=5e-4)


@pytest.mark.traces
def test_an_addition_at_the_memorys_side(traces_dir: Path) -> None:
    """0.0833 FLOP/B, 1.91 TB/s: 36 % of 5.3."""
    kernel = diagnose(read_trace(traces_dir / "mi300_add_bandwidth.json")).top_kernels[0]
    assert (kernel.roof, kernel.limit) == ("memory", "memory")
    assert kernel.flop_per_byte == pytest.approx(0.0833, abs=1e-4)
    assert kernel.bytes_per_s == pytest.approx(1.91e12, rel=2e-3)
    assert kernel.of_roof_frac == pytest.approx(0.36, abs=2e-3)
