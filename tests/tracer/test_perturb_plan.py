"""What can be perturbed is announced; what cannot is refused by name, before the training is touched."""

import json
from dataclasses import replace

import pytest
import torch
from perturbing import site
from torch import distributed, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.utils import parametrizations

from megalens.adapters import find_adapter, sites_of
from megalens.protocol import ProtocolError, check_message
from megalens.tracer import Place
from megalens.tracer.perturb import perturb_plan, site_infos


def points_of(model: nn.Module):
    return find_adapter(model).points(model)


def weight_only(module: nn.Module, place: Place | None = None, layers: int = 1, **options):
    """A model that is one module, with its weight as the only site."""
    from megalens.tracer import ModelPoints

    root = nn.Sequential(module)
    points = ModelPoints((root,), {"layers": layers, "dtype": "float32"}, {}, sites_of(weight={0: [module]}))
    return replace(points, place=place or Place(), **options)


def test_every_site_is_announced_with_its_layers_and_kinds(gpt) -> None:
    infos = site_infos(points_of(gpt))
    assert [(info["name"], info["layers"]) for info in infos] == [
        ("weight", [0, 1]),
        ("calculation", [0, 1]),
        ("system", [0, 1]),
    ]
    assert [kind["name"] for kind in infos[0]["kinds"]] == ["noise1", "noise2", "bit_flip", "offset"]
    assert not any("reason" in info for info in infos)


def test_what_is_announced_fits_the_contract(gpt) -> None:
    points = points_of(gpt)
    gpt.blocks[0].mlp.fc1.gradient_accumulation_fusion = True
    gpt.blocks[1].mlp.fc1.gradient_accumulation_fusion = True
    message = {
        "type": "announce",
        "rank": 0,
        "model": points.model,
        "layout": {"world_size": 1, "tp": 1, "pp": 1, "dp": 1},
        "flags": [],
        "compressors": [],
        "config": {
            "flags": {},
            "perturb": perturb_plan({"sites": {"system": site("noise1")}}, points).setting,
        },
        "versions": {},
        "controls": ["perturb"],
        "sites": site_infos(points),
    }
    check_message(json.loads(json.dumps(message)))
    assert message["sites"][0]["layers"] == []
    assert message["sites"][0]["reason"].startswith("Layer 0: blocks.0.mlp.fc1 accumulates")


def test_a_plan_says_its_complete_setting_and_cannot_be_changed(gpt) -> None:
    plan = perturb_plan({"sites": {"weight": {"kind": {"name": "noise2"}}}}, points_of(gpt))
    complete = {
        "sites": {
            "weight": {
                "kind": {"name": "noise2", "params": {"coefficient": 0.05}},
                "layers": "all",
                "phases": ["train"],
            }
        },
        "seed": 0,
        "steps": 100,
    }
    assert plan.setting == complete
    plan.setting["sites"].clear()
    assert plan.setting == complete
    assert perturb_plan(plan.setting, points_of(gpt)).setting == complete
    assert plan.sites[0].layers == (0, 1)


@pytest.mark.parametrize(
    ("setting", "code", "field", "says"),
    [
        ({"norm": site("noise1")}, "bad-parameter", "norm", "Choose one of weight, calculation, system"),
        ({"weight": site("noise9")}, "bad-parameter", "weight.kind.name", "Choose one of noise1"),
        (
            {"weight": site("noise1", coefficient="x")},
            "bad-parameter",
            "weight.kind.params.coefficient",
            "a number from 0",
        ),
        ({"system": site("noise1", "2-3")}, "unknown-layer", "system.layers", "layers 0–1"),
        (
            {"system": site("bit_flip", bit=32)},
            "bad-parameter",
            "system.kind.params.bit",
            "torch.float32 has the bits 0 to 31, and no 32",
        ),
        ({"weight": site("bit_flip", bit=63)}, "bad-parameter", "weight.kind.params.bit", "no 63"),
    ],
)
def test_a_wrong_setting_names_its_field(gpt, setting, code: str, field: str, says: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        perturb_plan({"sites": setting}, points_of(gpt))
    assert (caught.value.code, caught.value.field) == (code, f"perturb.sites.{field}")
    assert says in caught.value.message


def test_the_end_of_a_perturbation_is_told_and_not_asked_for(gpt) -> None:
    with pytest.raises(ProtocolError, match="Say how many training steps") as caught:
        perturb_plan({"sites": {"system": site("noise1")}, "until": 7}, points_of(gpt))
    assert caught.value.field == "perturb.until"


class Integers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2, 2, dtype=torch.int8), requires_grad=False)


class Fused(nn.Linear):
    gradient_accumulation_fusion = True


class Packed(torch.Tensor):
    """A quantised weight, as libraries make them: a tensor of another class that says it is float32."""


class FromTransformerEngine(nn.Linear):
    """Told by where its class is from; the library itself needs a GPU."""

    __module__ = "transformer_engine.pytorch.module.linear"


def packed() -> nn.Module:
    module = nn.Linear(2, 2)
    module.weight = nn.Parameter(torch.zeros(2, 2).as_subclass(Packed))
    return module


def compiled() -> nn.Module:
    module = nn.Linear(2, 2)
    module.compile(backend="eager")
    return module


REFUSED = {
    "Integers": (Integers, "has a weight of torch.int8, which cannot be perturbed"),
    "Fused": (lambda: Fused(2, 2), "gradient_accumulation_fusion"),
    "Packed": (packed, "has a weight that is a Packed"),
    "parametrised": (lambda: parametrizations.weight_norm(nn.Linear(2, 2)), "has no parameter 'weight'"),
    "engine": (lambda: FromTransformerEngine(2, 2), "is a layer of Transformer Engine"),
    "none": (nn.GELU, "has no parameter 'weight' of its own"),
    "meta": (lambda: nn.Linear(2, 2, device="meta"), "is not loaded"),
    "attention": (lambda: nn.MultiheadAttention(4, 2).out_proj, "nn.MultiheadAttention reads its weight"),
    "script": (lambda: torch.jit.script(nn.Linear(2, 2)), "is compiled"),
    "compiled": (compiled, "is compiled, and compiled code reads weights past any hook"),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.parametrize("case", REFUSED)
def test_a_weight_that_cannot_be_perturbed_is_refused_by_name(case: str) -> None:
    make, says = REFUSED[case]
    points = weight_only(make())
    with pytest.raises(ProtocolError) as caught:
        perturb_plan({"sites": {"weight": site("noise1")}}, points)
    assert (caught.value.code, caught.value.field) == ("bad-parameter", "perturb.sites.weight")
    assert "Layer 0: 0 " in caught.value.message
    assert says in caught.value.message
    info = site_infos(points)[0]
    assert (info["layers"], says in info["reason"]) == ([], True)


@pytest.mark.filterwarnings("ignore:FSDP is switching:UserWarning")
def test_weights_in_flat_parameters_are_refused(gpt) -> None:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        sharded = FullyShardedDataParallel(gpt, use_orig_params=True, device_id=torch.device("cpu"))
        infos = site_infos(points_of(sharded))
    finally:
        distributed.destroy_process_group()
    assert [info["layers"] for info in infos] == [[], [0, 1], [0, 1]]
    assert (
        "FullyShardedDataParallel, which keeps weights in flat parameters. Use fully_shard"
        in infos[0]["reason"]
    )


def test_a_model_compiled_as_a_whole_is_refused_at_every_site(gpt) -> None:
    whole = torch.compile(gpt, backend="eager")
    for info in site_infos(points_of(whole)):
        assert info["layers"] == []
        assert "before torch.compile" in info["reason"]


def test_one_layer_that_cannot_be_perturbed_leaves_the_others(gpt) -> None:
    gpt.blocks[0].attention.qkv.gradient_accumulation_fusion = True
    points = points_of(gpt)
    assert [info["layers"] for info in site_infos(points)] == [[1], [0, 1], [0, 1]]
    assert perturb_plan({"sites": {"weight": site("noise1")}}, points).sites[0].layers == (1,)
    with pytest.raises(ProtocolError, match=r"Layer 0: blocks\.0\.attention\.qkv accumulates") as caught:
        perturb_plan({"sites": {"weight": site("noise1", "0-1")}}, points)
    assert caught.value.field == "perturb.sites.weight.layers"


def test_a_pipeline_stage_takes_its_own_layers_of_what_is_asked() -> None:
    stage = Place(rank=1, pp=1, tp_ranks=(1,), world_size=2, pp_size=2)
    points = weight_only(nn.Linear(2, 2), stage, layers=4)
    assert perturb_plan({"sites": {"weight": site("noise1", "0-2")}}, points).sites[0].layers == (0,)
    assert perturb_plan({"sites": {"weight": site("noise1", "1-3")}}, points).sites[0].layers == ()
    with pytest.raises(ProtocolError, match="layers 0–3"):
        perturb_plan({"sites": {"weight": site("noise1", "5")}}, points)
    # A stage without any layer has nothing to refuse.
    nothing = replace(points, sites={})
    plan = perturb_plan({"sites": {"system": site("noise1", "0-2")}}, nothing)
    assert plan.sites[0].layers == ()
    assert site_infos(nothing)[2]["reason"] == "This process holds no such place."


def test_a_model_without_a_site_says_why() -> None:
    sites = sites_of(system={1: [nn.GELU()]})
    points = replace(weight_only(nn.Linear(2, 2)), sites=sites)
    with pytest.raises(ProtocolError, match="names no module whose output is the MLP's"):
        perturb_plan({"sites": {"calculation": site("noise1")}}, points)
    assert "no linear modules" in site_infos(points)[0]["reason"]
