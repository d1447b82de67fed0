"""Devices by name."""

import pytest
import torch

from annotated.training.devices import find_device


@pytest.mark.parametrize("name", ["cuda:0", "gpu", ""])
def test_a_device_that_does_not_exist_is_a_clear_error(name):
    with pytest.raises(ValueError, match=f"must be auto, cuda, mps, cpu, not '{name}'"):
        find_device(name)


def test_each_process_needs_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert find_device("auto") == find_device("cuda") == torch.device("cuda", 1)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(ValueError, match=r"process 2 of node 0 .* has no GPU: use --nproc-per-node 2"):
        find_device("cuda")
