"""Devices by name."""

import pytest
import torch
from torch import distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from annotated.devices import find_device, is_first
from annotated.training.distributed import process_group


@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda")])
def test_a_device_that_is_not_here_is_a_clear_error(device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="there is no cuda device"):
        find_device(device)


def test_a_device_of_no_kind_is_a_clear_error():
    with pytest.raises(ValueError, match="no device 'gpu'"):
        find_device("gpu")


def test_the_processes_of_a_program_that_joined_by_itself_have_its_numbers():
    dist.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
    try:
        assert not is_first()
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("variables", [{"RANK": "1"}, {"WORLD_SIZE": ""}, {"RANK": "1", "WORLD_SIZE": "1"}])
def test_variables_that_name_no_other_process_mean_a_single_one(variables, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with process_group(torch.device("cpu")):
        assert is_first()
        assert not dist.is_initialized()
