"""A pass is watched in each process of a job, and shows what it shows in one."""

import pytest
from processes import run_job

# The first one of them waits for Megatron-Core to be imported.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WAYS = {"ddp": 2, "fsdp": 2, "fsdp2": 2, "tensor": 2, "sequence": 2, "fsdp2 and tensor": 4}


@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_is_cut_is_seen_as_it_is_in_one_process(way: str) -> None:
    for failed, changed, layers, heads in run_job(WAYS[way], "torch_work:watched", "llama", way):
        assert failed is None
        assert changed == set()
        assert {flag: here for flag, here in layers.items() if here != [0, 1]} == {"InputTokens": [-1]}
        assert heads == 4
