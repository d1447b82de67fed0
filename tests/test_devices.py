"""The processes of a run, by the variables that `torchrun` sets and by torch.distributed."""

import pytest
import torch
from torch import distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from annotated.translation.processes import is_first, process_group


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
