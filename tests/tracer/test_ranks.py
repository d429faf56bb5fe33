"""A job of several processes starts one hub."""

import torch
from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore

from megalens import Tile, trace


def test_only_rank_0_starts_a_hub(gpt, ids, tmp_path) -> None:
    distributed.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
    try:
        with trace(gpt, flags={"MLP1_mat_mul": Tile(2)}, record=tmp_path / "runs") as tracer:
            with tracer.step(), torch.no_grad():
                gpt(ids)
            assert tracer.run_id is None
            assert not any(module._forward_hooks for module in gpt.modules())
        assert not (tmp_path / "runs").exists()
    finally:
        distributed.destroy_process_group()
