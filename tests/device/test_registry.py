"""Names of devices: those that are here open, those that are not and nonsense get one sentence each."""

from __future__ import annotations

import pytest

from referee.device.registry import list_devices, open_device
from referee.errors import DeviceMissing, OptionError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_the_cpu_is_always_here() -> None:
    assert open_device("cpu").name == "cpu"
    assert open_device("cpu:0").name == "cpu"


@pytest.mark.parametrize("name", ["", "cuda:", "CUDA:0", "cuda:-1", "cuda:x", "disk", "cpu 0", "fake"])
def test_nonsense_is_the_users_mistake(name: str) -> None:
    with pytest.raises(OptionError, match="is not a device name") as raised:
        open_device(name)
    assert raised.value.exit_status == 2
    assert raised.value.hint


@pytest.mark.parametrize(("name", "torch_name"), [("gpu", "cuda"), ("rocm:1", "cuda"), ("metal", "mps")])
def test_other_words_for_a_device_are_explained(name: str, torch_name: str) -> None:
    with pytest.raises(OptionError) as raised:
        open_device(name)
    assert torch_name in raised.value.hint


def test_an_absent_device_is_named_with_its_mend() -> None:
    if torch.cuda.is_available():
        pytest.skip("a CUDA device is here")
    with pytest.raises(DeviceMissing, match="No device cuda:0 here") as raised:
        open_device("cuda:0")
    assert raised.value.exit_status == 3
    assert "--device cpu" in raised.value.hint


def test_an_index_beyond_the_last_says_how_many_there_are() -> None:
    with pytest.raises(DeviceMissing, match="No device cpu:3 here: 1 such device is here"):
        open_device("cpu:3")


def test_every_listed_device_opens_or_says_why_not() -> None:
    entries = list_devices()
    assert {"cpu"} <= {entry.name for entry in entries if entry.available}
    for entry in entries:
        if entry.available:
            device = open_device(entry.name)
            assert device.settling.value == entry.settling
        else:
            assert entry.detail
