"""Families of calls and kernels by name: what a name may decide, and what it must not."""

from __future__ import annotations

import pytest

from referee.graph.calls import COLLECTIVES, COPIES, WAITS


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("cudaMemcpy", True),
        ("cuMemcpyDtoH_v2", True),
        ("hipMemcpyWithStream", True),
        ("cudaMemcpyAsync", False),
        ("cuMemcpyHtoDAsync_v2", False),
        ("aclrtMemcpyAsync", False),
        ("urEnqueueUSMMemcpy", False),
        ("cudaLaunchKernel", False),
    ],
)
def test_copies_that_only_hand_over_do_not_wait_by_name(name: str, *, waits: bool) -> None:
    assert bool(COPIES.search(name)) is waits


@pytest.mark.parametrize("name", ["cudaStreamSynchronize", "hipDeviceSynchronize", "urQueueFinish", "urEventWait"])
def test_waits(name: str) -> None:
    assert WAITS.search(name)


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "void rcclGenericKernel<1>(ncclDevKernelArgs)",
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*)",
        "userbuffers_fp16_sum_inplace_gpu_rr_rs_oop",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>",
        "hcom_allReduce__123_0_1",
    ],
)
def test_kernels_that_talk_to_other_devices(name: str) -> None:
    assert COLLECTIVES.search(name)


@pytest.mark.parametrize("name", ["void at::native::reduce_kernel<512, 1>", "moe_dispatch_kernel", "gemm_combine"])
def test_kernels_that_do_not(name: str) -> None:
    assert not COLLECTIVES.search(name)
