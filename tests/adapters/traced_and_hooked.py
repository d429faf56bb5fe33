"""One training step of a tiny model, traced and seen by plain hooks."""

import torch
from torch import nn

from megalens.adapters import find_points
from megalens.adapters.watch import PassWatch
from tests.adapters.model_zoo import Layout
from tests.adapters.plain_hooks import plain_hooks
from tests.adapters.watched import captured

IDS = torch.randint(3, 60, (2, 2, 9), generator=torch.Generator().manual_seed(5))


def check(
    layout: Layout,
    model: nn.Module,
    bare: nn.Module,
    attention: str,
    micro_batches: int,
    *,
    gradients: bool = False,
) -> None:
    watch = PassWatch(find_points(model))
    with torch.no_grad(), watch:
        model(input_ids=IDS[0], labels=IDS[0])
    points = watch.finish()
    assert watch.failed is None
    trains = model.training
    with (
        captured(points, "forward", *(["backward"] if gradients else [])) as rows,
        plain_hooks(bare, layout, attention == "eager") as (seen, expected_gradients),
    ):
        for ids in IDS[:micro_batches]:
            output = model(input_ids=ids, labels=ids)
            if trains:
                output.loss.backward()
    traced: dict = {}
    for row in rows:
        key = (row.meta.flag, row.meta.layer, row.meta.part)
        traced.setdefault((row.meta.side, *key), {})[row.meta.micro_batch] = row.values
    found = {key[1:]: values for key, values in traced.items() if key[0] == "forward"}
    others = {key for key in found if key not in seen}
    assert {key[0] for key in others} <= {"RouterProbabilities", "ExpertOutputs", "InputTokens"}
    assert set(seen) <= set(found)
    for key, values in seen.items():
        assert len(values) == micro_batches == len(found[key])
        for number, value in enumerate(values):
            assert torch.equal(found[key][number], value.float()), (key, number)
    assert found["InputTokens", -1, "positions"][0].tolist() == [list(range(9))] * 2
    if gradients:
        backward = {key[1:]: values for key, values in traced.items() if key[0] == "backward"}
        assert set(expected_gradients) == {key for key in seen if key[0] != "InputTokens"}
        for key, values in expected_gradients.items():
            assert len(values) == micro_batches
            for number, value in enumerate(values):
                assert torch.equal(backward[key][number], value.float()), ("gradient", key, number)
    if attention == "eager" and ("QKV_mat_mul", 1, "v") in found:
        # What attention is, whatever the layout: the context is the values, weighted by the probabilities.
        probabilities, v = found["RawAttentionScore_mat_mul", 1, ""][0], found["QKV_mat_mul", 1, "v"][0]
        heads = v.view(2, 9, -1, found["ContextLayer_mat_mul", 1, ""][0].shape[-1] // 4).transpose(1, 2)
        context = probabilities @ heads.repeat_interleave(4 // heads.shape[1], dim=1)
        torch.testing.assert_close(
            found["ContextLayer_mat_mul", 1, ""][0], context.transpose(1, 2).flatten(2)
        )
    elif attention != "eager":
        assert "eager" in (points.flags["RawAttentionScore_mat_mul"].reason or "")
