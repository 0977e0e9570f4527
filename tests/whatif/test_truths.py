"""Every edit gives the step that the simulation gives when its workload is changed in the same way."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from referee.graph.work import work_by_device
from referee.records.whatif import EditResult
from referee.testing import Workload, intervene, simulate, truth_of
from referee.trace.builder import TraceBuilder
from referee.trace.columns import Trace
from referee.whatif import edits as make
from referee.whatif.batch import busy_at
from referee.whatif.edits import Edit
from referee.whatif.replay import ask, catalogue

US = 1_000
WITHIN = 0.01

KERNELS = st.integers(2, 60).map(lambda us: us * US)
OPERATORS = st.integers(6, 40).map(lambda us: us * US)


def told(workload: Workload, *edits: Edit) -> EditResult:
    answer = ask(simulate(workload, seed=3).trace, edits)
    assert answer.replay_error_frac == pytest.approx(0, abs=0.002)
    return answer.together or answer.edits[0]


def window_ns(workload: Workload) -> int:
    return truth_of(workload, seed=3).window_ns


@settings(max_examples=25, deadline=None)
@given(kernel_ns=KERNELS, op_ns=OPERATORS, copy_ns=st.integers(0, 1), collective_ns=st.integers(0, 1))
def test_a_faster_device(kernel_ns: int, op_ns: int, copy_ns: int, collective_ns: int) -> None:
    """Copies and collectives keep their time: a link is no faster for a faster chip."""
    workload = Workload(
        kernel_ns=kernel_ns, op_ns=op_ns, copy_ns=copy_ns * 80 * US, collective_ns=collective_ns * 60 * US
    )
    truth_ns = window_ns(replace(workload, kernel_ns=kernel_ns // 2))
    assert told(workload, make.device_speed(2.0)).low_ns == pytest.approx(truth_ns, rel=WITHIN)


@settings(max_examples=25, deadline=None)
@given(kernel_ns=st.integers(10, 60).map(lambda us: us * US), queue_length=st.sampled_from([8, 16, 20, 64, 300]))
def test_a_faster_device_behind_a_full_queue_of_any_length(kernel_ns: int, queue_length: int) -> None:
    workload = Workload(kernel_ns=kernel_ns, op_ns=4 * US, launch_ns=2 * US, ops=200, queue_length=queue_length)
    truth_ns = window_ns(intervene(workload, device=0.5))
    assert told(workload, make.device_speed(2.0)).low_ns == pytest.approx(truth_ns, rel=WITHIN)


@settings(max_examples=25, deadline=None)
@given(kernel_ns=KERNELS, op_ns=OPERATORS)
def test_a_faster_host(kernel_ns: int, op_ns: int) -> None:
    workload = Workload(kernel_ns=kernel_ns, op_ns=op_ns)
    truth_ns = window_ns(intervene(workload, host=0.5))
    assert told(workload, make.host_speed(2.0)).low_ns == pytest.approx(truth_ns, rel=WITHIN)


@settings(max_examples=25, deadline=None)
@given(kernel_ns=KERNELS, op_ns=OPERATORS, every=st.sampled_from([5, 10, 25]), after_us=st.integers(0, 40))
def test_without_waits(kernel_ns: int, op_ns: int, every: int, after_us: int) -> None:
    workload = Workload(kernel_ns=kernel_ns, op_ns=op_ns, sync_every=every, after_sync_ns=after_us * US)
    answer = told(workload, make.no_sync())
    truth_ns = window_ns(intervene(workload, synchronises=False))
    assert answer.low_ns == pytest.approx(truth_ns, rel=WITHIN)


@settings(max_examples=25, deadline=None)
@given(kernel_ns=KERNELS, op_ns=OPERATORS, loader_us=st.sampled_from([0, 3000]))
def test_a_replayed_graph(kernel_ns: int, op_ns: int, loader_us: int) -> None:
    """The host's path goes but for the loader's; launching the graph itself is taken to cost nothing."""
    workload = Workload(kernel_ns=kernel_ns, op_ns=op_ns, loader_ns=loader_us * US)
    truth_ns = window_ns(replace(workload, graph=True, op_ns=0, launch_ns=0))
    assert told(workload, make.graph_replay()).low_ns == pytest.approx(truth_ns, rel=WITHIN)


@settings(max_examples=25, deadline=None)
@given(kernel_ns=KERNELS, op_ns=OPERATORS, share=st.sampled_from([0.25, 0.5, 0.75]))
def test_fewer_launches(kernel_ns: int, op_ns: int, share: float) -> None:
    workload = Workload(kernel_ns=kernel_ns, op_ns=op_ns)
    answer = told(workload, make.fewer_launches(share))
    calls = replace(workload, launch_ns=round(workload.launch_ns * (1 - share)))
    path = replace(calls, op_ns=round(op_ns * (1 - share)))
    assert answer.high_ns == pytest.approx(window_ns(calls), rel=WITHIN)
    assert answer.low_ns == pytest.approx(window_ns(path), rel=WITHIN)


@settings(max_examples=25, deadline=None)
@given(kernel_ns=KERNELS, op_ns=OPERATORS, copy_us=st.integers(50, 3000))
def test_overlapped_copies(kernel_ns: int, op_ns: int, copy_us: int) -> None:
    workload = Workload(kernel_ns=kernel_ns, op_ns=op_ns, copy_ns=copy_us * US)
    truth_ns = window_ns(replace(workload, overlapped=True))
    assert told(workload, make.overlap_copies()).low_ns == pytest.approx(truth_ns, rel=WITHIN)


@settings(max_examples=25, deadline=None)
@given(kernel_ns=KERNELS, op_ns=OPERATORS, collective_us=st.integers(50, 3000))
# The stream of a collective is free between its launch and what a launch takes, and it waits for another stream.
@example(kernel_ns=45_000, op_ns=29_000, collective_us=447)
def test_hidden_collectives(kernel_ns: int, op_ns: int, collective_us: int) -> None:
    workload = Workload(kernel_ns=kernel_ns, op_ns=op_ns, collective_ns=collective_us * US)
    truth_ns = window_ns(replace(workload, overlapped=True))
    answer = told(workload, make.hide_communication())
    if workload.collective_ns < 0.4 * window_ns(replace(workload, collective_ns=0)) / workload.steps:
        assert answer.low_ns == pytest.approx(truth_ns, rel=WITHIN)
    else:
        # Called in mid-step it does not fit beside what is left: hidden in part.
        assert answer.low_ns <= truth_ns * (1 + WITHIN)


def test_hidden_work_still_takes_its_time() -> None:
    for workload, edit in (
        (Workload(copy_ns=9_000 * US), make.overlap_copies()),
        (Workload(collective_ns=9_000 * US), make.hide_communication()),
    ):
        assert told(workload, edit).low_ns >= 3 * 9_000 * US


@settings(max_examples=25, deadline=None)
@given(kernel_ns=KERNELS, op_ns=OPERATORS, matrix_us=st.integers(10, 80), every=st.sampled_from([2, 5, 10]))
def test_fused_chains(kernel_ns: int, op_ns: int, matrix_us: int, every: int) -> None:
    workload = Workload(kernel_ns=kernel_ns, op_ns=op_ns, matrix_every=every, matrix_ns=matrix_us * US)
    truth_ns = window_ns(replace(workload, fused=True))
    assert told(workload, make.fuse()).low_ns == pytest.approx(truth_ns, rel=WITHIN)


@settings(max_examples=25, deadline=None)
@given(kernel_ns=KERNELS, op_ns=OPERATORS, matrix_us=st.integers(10, 80), every=st.sampled_from([2, 5, 10]))
def test_low_precision(kernel_ns: int, op_ns: int, matrix_us: int, every: int) -> None:
    workload = Workload(kernel_ns=kernel_ns, op_ns=op_ns, matrix_every=every, matrix_ns=matrix_us * US)
    truth_ns = window_ns(replace(workload, matrix_ns=workload.matrix_ns // 2))
    assert told(workload, make.low_precision()).low_ns == pytest.approx(truth_ns, rel=WITHIN)


@settings(max_examples=25, deadline=None)
@given(fixed_us=st.integers(0, 40), slope_us=st.integers(1, 20))
def test_another_batch_size(fixed_us: int, slope_us: int) -> None:
    def busy_ns(batch: int) -> float:
        workload = Workload(kernel_ns=(fixed_us + slope_us * batch) * US)
        return float(sum(work.busy_ns for work in work_by_device(simulate(workload).trace)))

    answer = busy_at(8, {2.0: busy_ns(2), 4.0: busy_ns(4)})
    assert answer.step_ns == pytest.approx(busy_ns(8), rel=WITHIN)


@settings(max_examples=15, deadline=None)
@given(kernel_ns=KERNELS, op_ns=OPERATORS)
def test_edits_together(kernel_ns: int, op_ns: int) -> None:
    workload = Workload(
        kernel_ns=kernel_ns, op_ns=op_ns, matrix_every=5, sync_every=20, copy_ns=80 * US, collective_ns=60 * US
    )
    changed = replace(
        intervene(workload, synchronises=False),
        overlapped=True,
        matrix_ns=workload.matrix_ns // 4,
        kernel_ns=kernel_ns // 2,
    )
    edits = (
        make.no_sync(),
        make.overlap_copies(),
        make.hide_communication(),
        make.low_precision(),
        make.device_speed(2),
    )
    assert told(workload, *edits).low_ns == pytest.approx(window_ns(changed), rel=WITHIN)


RICH = Workload(
    kernel_ns=20 * US,
    op_ns=10 * US,
    sync_every=7,
    steps=2,
    ops=21,
    copy_ns=80 * US,
    collective_ns=60 * US,
    matrix_every=3,
    loader_ns=100 * US,
)


@pytest.mark.parametrize("pair", list(permutations([edit.name for edit in catalogue()], 2)), ids=" then ".join)
def test_edits_commute_exactly(pair: tuple[str, str]) -> None:
    named = {edit.name: edit for edit in catalogue()}
    trace = simulate(RICH, seed=2).trace
    there, back = (ask(trace, [named[name] for name in order]).together for order in (pair, pair[::-1]))
    assert there is not None
    assert back is not None
    assert (there.low_ns, there.high_ns) == (back.low_ns, back.high_ns)


def test_no_edit_of_the_catalogue_makes_the_step_longer() -> None:
    answer = ask(simulate(RICH, seed=2).trace, catalogue())
    assert all(edit.high_ns <= answer.replayed_ns + 1 for edit in answer.edits)


def kernels_named(*names: str) -> Trace:
    build = TraceBuilder()
    for number, name in enumerate(names):
        build.launch("cudaLaunchKernel", number * 10 * US, 5 * US, correlation=number + 1)
        build.kernel(name, (10 + number * 100) * US, 100 * US, stream=7, correlation=number + 1)
    return build.build()


@pytest.mark.parametrize(
    ("name", "gains"),
    [
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x256", False),
        ("Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x128", False),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x16", False),
        ("Cijk_Ailk_Bljk_SB_MT64x64x16", True),
        ("Cijk_Ailk_Bljk_S_B_Bias_MT64x64x16", True),
        ("ampere_sgemm_128x64_tn", True),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_32x6_tn", False),
        ("volta_h884gemm_64x64_nn", False),
        ("cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4", True),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", False),
    ],
)
def test_products_that_are_in_a_low_precision_gain_nothing_from_amp(name: str, *, gains: bool) -> None:
    answer = ask(kernels_named(name), [make.low_precision()])
    assert (answer.edits[0].low_ns < answer.replayed_ns) is gains


def test_a_norm_is_no_pointwise_kernel() -> None:
    names = ["void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>"] * 3
    answer = ask(kernels_named(*names), [make.fuse()])
    assert answer.edits[0].low_ns == answer.replayed_ns
