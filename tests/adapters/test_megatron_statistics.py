"""Names, ends and optimizers of Megatron-Core, on stand-ins of what does not run without a GPU; the real ones are tested in real jobs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from megalens.adapters.megatron_gradients import optimizer_params, ready_moment
from megalens.adapters.megatron_moments import refusals, residual_points, site_points
from megalens.adapters.megatron_ranks import MegatronRanks, megatron_modules
from megalens.protocol import MOMENT_STATS


def layer(number: int, **children: nn.Module) -> nn.Module:
    """A layer that knows its number over all stages, from 1."""
    made = nn.Module()
    made.layer_number = number
    made.config = SimpleNamespace(sequence_parallel=False)
    for name, child in children.items():
        made.add_module(name, child)
    return made


def stack(*layers: nn.Module) -> nn.Module:
    made = nn.Module()
    made.layers = nn.ModuleList(layers)
    return made


def like(name: str, sequence_parallel: bool = False, **attributes: Any) -> nn.Module:
    """A module of a class of that name."""
    made: nn.Module = type(name, (nn.Module,), {})()
    made.config = SimpleNamespace(sequence_parallel=sequence_parallel)
    for attribute, value in attributes.items():
        setattr(made, attribute, value)
    return made


def experts(**children: nn.Module) -> nn.Module:
    """A mixture of experts on the second of two expert-parallel ranks."""
    mixture, held = nn.Module(), nn.Module()
    mixture.local_expert_indices = [2, 3]
    for name, child in children.items():
        held.add_module(name, child)
    mixture.experts = held
    return mixture


def parameters(model: nn.Module) -> list[str]:
    return [
        at.parameter_name(name)
        for at in megatron_modules(model)
        for name, _ in at.module.named_parameters(recurse=False)
    ]


def test_layers_are_numbered_over_all_stages_and_wrappers_leave_no_word() -> None:
    wrapped = nn.Module()
    wrapped.add_module("_orig_mod", layer(4, norm=nn.LayerNorm(2)))
    model = nn.Module()
    model.decoder = stack(layer(3, norm=nn.LayerNorm(2)), wrapped)
    names = [f"decoder.layers.{number}.norm.{kind}" for number in (2, 3) for kind in ("weight", "bias")]
    assert parameters(model) == names


def test_experts_are_numbered_over_all_ranks_one_by_one_and_grouped() -> None:
    grouped = nn.Module()
    for own in range(2):
        grouped.register_parameter(f"weight{own}", nn.Parameter(torch.zeros(2)))
    own = nn.ModuleList([nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)])
    model = nn.Module()
    model.decoder = stack(layer(1, mlp=experts(local_experts=own)), layer(2, mlp=experts(linear_fc1=grouped)))
    assert parameters(model) == [
        "decoder.layers.0.mlp.experts.local_experts.2.weight",
        "decoder.layers.0.mlp.experts.local_experts.3.weight",
        "decoder.layers.1.mlp.experts.linear_fc1.weight2",
        "decoder.layers.1.mlp.experts.linear_fc1.weight3",
    ]


def test_experts_in_one_tensor_are_no_expert_1() -> None:
    held = experts()
    held.experts.register_parameter("weight1", nn.Parameter(torch.zeros(2)))
    assert parameters(held) == ["experts.linear_fc1.weight"]


def test_predictors_of_several_tokens_keep_their_index_and_number_their_experts() -> None:
    own = nn.ModuleList([nn.Linear(2, 2, bias=False)])
    inner = layer(9, mlp=experts(local_experts=own))
    model = nn.Module()
    model.mtp = stack(layer(1, transformer_layer=inner))
    assert parameters(model) == [
        "mtp.layers.0.transformer_layer.mlp.experts.local_experts.2.weight",
    ]
    assert list(residual_points(megatron_modules(model), MegatronRanks())) == []


FIRST = MegatronRanks(tp_size=2, expert_tp_size=2)
SECOND = MegatronRanks(tp=1, tp_size=2, expert_tp=1, expert_tp_size=2)


@pytest.mark.parametrize(
    ("module", "ends"),
    [
        (like("ColumnParallelLinear"), (False, True)),
        (like("ColumnParallelLinear", gather_output=True), None),
        (
            like("TELayerNormColumnParallelLinear", sequence_parallel=True, parallel_mode="column"),
            (True, True),
        ),
        (like("RowParallelLinear", input_is_parallel=True), (True, False)),
        (like("RowParallelLinear", input_is_parallel=False), None),
        (like("TERowParallelLinear", sequence_parallel=True, parallel_mode="row"), (True, True)),
        (like("VocabParallelEmbedding", reduce_scatter_embeddings=True), (False, True)),
        (like("VocabParallelEmbedding"), None),
        (like("Router"), None),
        (like("Router", sequence_parallel=True), (True, True)),
        (like("TELinear", sequence_parallel=True), (True, True)),
        (like("ColumnParallelLinearGathered", sequence_parallel=True), (True, True)),
        (nn.Linear(2, 2), None),
        (like("LayerNorm"), None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else str(value),
)
def test_the_second_rank_counts_what_is_cut(module: nn.Module, ends: tuple[bool, bool] | None) -> None:
    model = nn.Module()
    model.layer = module
    found = list(site_points(megatron_modules(model), SECOND))
    assert [(site.counts_input, site.counts_output) for site in found] == ([] if ends is None else [ends])
    first = list(site_points(megatron_modules(model), FIRST))
    assert all(site.counts_input and site.counts_output for site in first)


def test_parts_of_a_sum_are_not_measured_and_their_gradients_are() -> None:
    model = experts(
        linear_fc1=like("TEColumnParallelGroupedLinear", parallel_mode=None),
        linear_fc2=like("TERowParallelGroupedLinear", parallel_mode=None),
    )
    into, out = site_points(megatron_modules(model), FIRST)
    assert (into.logs_input, into.logs_input_gradient) == (True, False)
    assert (out.logs_output, out.logs_output_gradient) == (False, True)
    # Where tensor parallelism leaves experts alone, all of it is whole.
    whole = MegatronRanks(tp=1, tp_size=2)
    for site in site_points(megatron_modules(model), whole):
        assert (site.counts_input, site.counts_output) == (True, True)
        assert (site.logs_input, site.logs_output) == (True, True)
        assert site.logs_input_gradient is site.logs_output_gradient is None


def test_logits_are_not_measured() -> None:
    model = nn.Module()
    model.output_layer = like("ColumnParallelLinear")
    for ranks in (MegatronRanks(), FIRST):
        (site,) = site_points(megatron_modules(model), ranks)
        assert (site.logs_input, site.logs_output, site.logs_output_gradient) == (True, False, False)


def test_the_residual_stream_begins_on_the_first_stage_only() -> None:
    def names(ranks: MegatronRanks, *layers: nn.Module) -> list[str]:
        model = nn.Module()
        model.decoder = stack(*layers)
        return [point.name for point in residual_points(megatron_modules(model), ranks)]

    assert names(FIRST, layer(1), layer(2)) == [
        "decoder/input0",
        "decoder.layers.0/output0",
        "decoder.layers.1/output0",
    ]
    assert names(FIRST, layer(3)) == ["decoder.layers.2/output0"]
    assert names(SECOND, layer(1)) == []
    part = layer(1)
    part.config.sequence_parallel = True
    assert names(SECOND, part) == ["decoder/input0", "decoder.layers.0/output0"]


class Prepares:
    """An optimizer that prepares gradients."""

    def __init__(self) -> None:
        self.infinite = False

    def prepare_grads(self) -> bool:
        """Return whether the step is skipped."""
        return self.infinite


def test_the_moment_is_after_preparing_finite_gradients_and_leaves_the_optimizer_as_it_was() -> None:
    optimizer, called = Prepares(), []
    first = ready_moment(optimizer)(lambda: called.append("first"))
    second = ready_moment(optimizer)(lambda: called.append("second"))
    assert optimizer.prepare_grads() is False
    assert called == ["first", "second"]
    optimizer.infinite = True
    assert optimizer.prepare_grads() is True
    assert called == ["first", "second"]
    optimizer.infinite = False
    # In the order in which nobody expects it.
    first()
    optimizer.prepare_grads()
    assert called == ["first", "second", "second"]
    second()
    optimizer.prepare_grads()
    assert called == ["first", "second", "second"]


def test_one_that_stood_in_alone_is_gone_when_it_stops() -> None:
    optimizer = Prepares()
    ready_moment(optimizer)(lambda: None)()
    assert vars(optimizer) == {"infinite": False}
    assert ready_moment(object()) is None


def test_a_layer_wise_optimizer_counts_what_it_was_dealt() -> None:
    mine, theirs = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = SimpleNamespace(
        dp_cp_params_list=[[mine], [theirs]],
        expt_dp_params_list=None,
        chained_optimizers=[SimpleNamespace(param_groups=[{"params": [mine]}])],
    )
    held = optimizer_params(optimizer)
    assert (held[id(mine)].tensor is mine, held[id(mine)].owned) == (True, True)
    assert (held[id(theirs)].tensor, held[id(theirs)].owned) == (None, True)


def test_where_master_weights_are_kept_from_us_the_models_own_are_what_there_is() -> None:
    weight = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    own = weight.detach()[:2]
    own.decoupled_grad = torch.full((2,), 3.0)
    leaf = SimpleNamespace(
        buffers=[SimpleNamespace(params=[weight])],
        model_float16_groups=[[weight]],
        shard_fp32_from_float16_groups=[[None]],
        shard_float16_groups=[[own]],
        model_fp32_groups=[],
        shard_fp32_groups=[],
        distributed_optimizer_instance_id=0,
    )
    held = optimizer_params(leaf)[id(weight)]
    assert held.value().tolist() == [1, 1]
    assert held.gradient().tolist() == [3, 3]
    # A second instance holds the same.
    leaf.distributed_optimizer_instance_id = 1
    assert optimizer_params(leaf)[id(weight)].value() is None


def test_fully_sharded_models_have_no_statistics() -> None:
    model = nn.Linear(2, 2)
    outer = like("TorchFullyShardedDataParallel")
    outer.module = model
    found = refusals([outer], [model], torch.optim.SGD(model.parameters(), 0.1))
    assert found.keys() == {*MOMENT_STATS}
    assert all("TorchFullyShardedDataParallel" in reason for reason in found.values())
