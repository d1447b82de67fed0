"""Devices by name."""

import pytest
import torch
from torch import distributed as dist

from annotated.training.distributed import find_device, processes


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


def test_a_process_takes_its_gpu_before_it_meets_the_others(monkeypatch):
    """Else NCCL would take the first GPU in every process."""
    done = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: done.append(device))
    monkeypatch.setattr(dist, "init_process_group", lambda backend: done.append(backend))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: done.append("over"))
    with processes(torch.device("cuda", 1)):
        pass
    assert done == [torch.device("cuda", 1), "cpu:gloo,cuda:nccl", "over"]
    done.clear()
    with processes(torch.device("cpu")):
        pass
    assert done == ["gloo", "over"]
