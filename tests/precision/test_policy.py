"""Autocast's policies by behaviour against torch's own test lists."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from referee.precision.policy import (  # noqa: E402
    BANNED,
    FLOAT32,
    FLOAT32_OUTPUT,
    KEYS,
    LOWER,
    PROMOTE,
    UNCLASSED,
    Policies,
    policies,
    registered,
)

lists = pytest.importorskip("torch.testing._internal.autocast_test_lists")

EXPECTED = {
    "torch_fp16": {LOWER},
    "nn_fp16": {LOWER},
    "linalg_fp16": {LOWER},
    "torch_16": {LOWER},
    "nn_16": {LOWER},
    "torch_fp32": {FLOAT32, FLOAT32_OUTPUT},
    "nn_fp32": {FLOAT32, FLOAT32_OUTPUT},
    "torch_need_autocast_promote": {PROMOTE},
    "banned": {BANNED},
}


def compared(found: Policies, tests: object) -> dict[tuple[str, str], bool]:
    """For each operator on torch's lists that is registered under its own name: does the class agree?"""
    by_name: dict[str, set[str]] = {}
    for op, policy in found.by_op.items():
        by_name.setdefault(op.removeprefix("aten::").partition(".")[0], set()).add(policy)
    agreed = {}
    for group, allowed in EXPECTED.items():
        for entry in getattr(tests, group, ()):
            if entry[0] in by_name:
                agreed[group, entry[0]] = by_name[entry[0]] <= allowed
    return agreed


@pytest.mark.parametrize("device_type", sorted(KEYS))
def test_every_registered_operator_is_classed(device_type: str) -> None:
    found = policies(device_type)
    assert set(found.by_op) == set(registered(KEYS[device_type]))
    assert len(found.by_op) > 80
    assert found.unclassed == ()
    assert UNCLASSED not in found.by_op.values()


def test_cuda_policies_agree_with_torchs_lists() -> None:
    agreed = compared(policies("cuda"), lists.AutocastTestLists(torch.device("cpu")))
    assert len(agreed) >= 80
    assert sum(agreed.values()) >= 0.95 * len(agreed), [key for key, same in agreed.items() if not same]


def test_cpu_policies_agree_with_torchs_lists() -> None:
    agreed = compared(policies("cpu"), lists.AutocastCPUTestLists(torch.device("cpu")))
    assert len(agreed) >= 30
    assert sum(agreed.values()) >= 0.95 * len(agreed), [key for key, same in agreed.items() if not same]


@pytest.mark.parametrize(
    ("call", "cuda", "cpu"),
    [
        ("linear", LOWER, LOWER),
        ("matmul", LOWER, LOWER),
        ("__matmul__", LOWER, LOWER),
        ("layer_norm", FLOAT32, ""),
        ("softmax", FLOAT32_OUTPUT, ""),
        ("sum", FLOAT32_OUTPUT, ""),
        ("mse_loss", FLOAT32, FLOAT32),
        ("binary_cross_entropy", BANNED, FLOAT32),
        ("cat", "", PROMOTE),
        ("relu", "", ""),
    ],
)
def test_policies_by_the_name_python_uses(call: str, cuda: str, cpu: str) -> None:
    name = call.strip("_") if call.startswith("__") else call
    assert policies("cuda").of_call(name) == cuda
    assert policies("cpu").of_call(name) == cpu


def test_an_unknown_device_has_none() -> None:
    assert policies("abacus").by_op == {}
