"""Memory of traced rows is used again, and never while somebody still looks at it."""

import numpy as np
import torch

from megalens import Tile
from megalens.tracer.tensors.compressors import Stage, StagePool


def test_a_stage_gives_room_one_after_another_and_memory_of_its_own_once_full() -> None:
    stage = Stage(10)
    (first, _), (second, where) = stage.allocate(6), stage.allocate(4)
    first[...], second[...] = 1, 2
    assert where == second.ctypes.data
    whole = stage.filled()
    assert whole is not None
    assert whole.tolist() == [1] * 6 + [2] * 4
    third, where = stage.allocate(5)
    assert where == third.ctypes.data
    assert not np.shares_memory(third, whole)
    assert stage.filled() is None


def test_a_pool_grows_to_what_a_step_wants_and_then_gives_the_same_memory_again() -> None:
    pool = StagePool()
    stage = pool.take()
    stage.allocate(300)
    pool.give(stage)
    grown = pool.take()
    assert grown.size == 300
    grown.allocate(300)
    pool.give(grown)
    assert pool.take() is grown


def test_a_pool_lets_a_stage_go_that_is_far_larger_than_what_is_wanted_now() -> None:
    pool = StagePool()
    large = Stage(10_000)
    large.allocate(8)
    pool.give(large)
    assert pool.take().size == 8


def test_a_stage_that_is_not_given_back_is_not_given_out_again() -> None:
    pool = StagePool()
    assert len({id(stage) for stage in [pool.take() for _ in range(5)]}) == 5


def test_values_arrive_as_they_were_while_many_steps_wait_to_be_sent(gpt, traced, small_hub) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": Tile(16), "QKV_mat_mul": Tile(8)})
    expected: list[np.ndarray] = []

    def keep(parts):
        return lambda module, args, output: expected.extend(
            part[0].unflatten(-1, (-1, part.shape[-1] // tiles)).mean(-1).detach().numpy().ravel()
            for tiles, part in zip((16,) if parts == 1 else (8,) * 3, output.chunk(parts, -1), strict=True)
        )

    hooks = []
    for block in gpt.blocks:
        hooks.append(block.attention.qkv.register_forward_hook(keep(3)))
        hooks.append(block.mlp.fc1.register_forward_hook(keep(1)))
    rng = torch.Generator().manual_seed(2)
    # No step waits for the producer thread, so that it is many steps behind.
    for _ in range(60):
        with tracer.step():
            gpt(torch.randint(0, 50, (3, 12), generator=rng))
    for hook in hooks:
        hook.remove()
    rows = small_hub.next_rows(60 * 2 * 4)
    assert [row["part"] for row in rows[:4]] == ["q", "k", "v", ""]
    for row, values in zip(rows, expected, strict=True):
        np.testing.assert_allclose(row["values"], values, rtol=1e-5, atol=1e-7)


def test_a_large_tensor_is_reduced_to_the_same_tiles(gpt, traced, small_hub) -> None:
    tracer = traced(gpt, flags={"MLP1_mat_mul": Tile(16)}, samples=None, layers="0")
    seen: list[torch.Tensor] = []
    gpt.blocks[0].mlp.fc1.register_forward_hook(lambda module, args, output: seen.append(output.detach()))
    with tracer.step():
        gpt(torch.randint(0, 50, (512, 12)))
    assert seen[0].nbytes > 1 << 20
    row = small_hub.next_rows(1)[0]
    assert row["shape"] == [512, 12, 16]
    expected = seen[0].unflatten(-1, (16, 4)).mean(-1)
    np.testing.assert_allclose(row["values"], expected.ravel(), rtol=1e-5, atol=1e-7)


def test_non_finite_values_are_counted_in_their_own_part(gpt, ids, traced, small_hub) -> None:
    tracer = traced(gpt, flags={"QKV_mat_mul": Tile(8)}, layers="1")

    def spoil(module, args, output):
        output = output.clone()
        output[0, 1, 20] = torch.nan
        output[0, 2, 21] = torch.nan
        output[0, 3, 40] = -torch.inf
        return output

    gpt.blocks[1].attention.qkv.register_forward_hook(spoil, prepend=True)
    with tracer.step():
        gpt(ids)
    rows = {row["part"]: row for row in small_hub.next_rows(3)}
    counts = {part: (row["nan_count"], row["inf_count"]) for part, row in rows.items()}
    assert counts == {"q": (0, 0), "k": (2, 0), "v": (0, 1)}
