"""Perturbations beyond the demo's model: Hugging Face's, with checkpointing, and the marks of a cut one."""

from dataclasses import replace

import pytest
import torch
import transformers
from perturbing import HandClock, Perturbing, site
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from megalens.adapters import find_adapter, sites_of
from megalens.tracer import FlagPoints, ModelPoints, Place, Source
from megalens.tracer.perturb import install_perturbations, perturb_plan

SITES = {
    "weight": site("noise2", coefficient=0.5),
    "calculation": site("offset", coefficient=0.5, fraction=0.5),
    "system": site("bit_flip", rate=0.1, bit=22),
}
IDS = torch.randint(0, 60, (2, 9), generator=torch.Generator().manual_seed(5))


def gpt2() -> torch.nn.Module:
    config = transformers.GPT2Config(vocab_size=60, n_positions=16, n_embd=24, n_layer=2, n_head=4)
    return transformers.GPT2LMHeadModel(config)


def qwen3() -> torch.nn.Module:
    config = transformers.Qwen3Config(
        vocab_size=60,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=6,
        max_position_embeddings=16,
        tie_word_embeddings=True,
    )
    return transformers.Qwen3ForCausalLM(config)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "tensors"), [(gpt2, 2 * (4 + 1 + 1)), (qwen3, 2 * (7 + 1 + 1))])
def test_a_hugging_face_model_is_perturbed_with_and_without_checkpointing(make, tensors: int) -> None:
    torch.manual_seed(0)
    model = make().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def gradients() -> dict[str, torch.Tensor]:
        # Dropout draws the same each time.
        torch.manual_seed(1)
        model(IDS, labels=IDS, use_cache=False).loss.backward()
        found = {name: p.grad.clone() for name, p in model.named_parameters()}
        model.zero_grad()
        return found

    clean = gradients()
    with Perturbing(model, SITES) as on:
        kept = gradients()
        assert (on.installed.calls, on.installed.errors) == (tensors, 0)
        model.activation_checkpointing_enable()
        recomputed = gradients()
        assert on.installed.calls > 2 * tensors
        model.activation_checkpointing_disable()
    for name, gradient in kept.items():
        assert not torch.equal(gradient, clean[name]), name
        torch.testing.assert_close(recomputed[name], gradient)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    for name, gradient in gradients().items():
        assert torch.equal(gradient, clean[name])


@pytest.mark.slow
def test_a_hugging_face_model_generates_perturbed_and_the_same_each_time() -> None:
    torch.manual_seed(0)
    model = gpt2().eval()

    def text(seed: int) -> list[int]:
        clock = HandClock(phase="generate")
        sites = {name: {**given, "phases": ["generate"]} for name, given in SITES.items()}
        with Perturbing(model, sites, seed, clock=clock):
            made = model.generate(IDS[:1], max_new_tokens=6, do_sample=False, pad_token_id=0)
        return made[0].tolist()

    clean = model.generate(IDS[:1], max_new_tokens=6, do_sample=False, pad_token_id=0)[0].tolist()
    assert text(0) == text(0)
    assert len({tuple(text(seed)) for seed in range(5)} | {tuple(clean)}) > 2


def drawn(gpt, ids, site_name: str, place: Place, sources: Source | None = None) -> torch.Tensor:
    """What a process at ``place`` adds to zeros."""
    points = replace(find_adapter(gpt).points(gpt), place=place)
    flag = {"calculation": "MLP2_mat_mul", "system": "HiddenStates"}.get(site_name)
    if sources is not None:
        points = replace(points, flags={flag: FlagPoints({0: (sources,)})})
    module = gpt.blocks[0].mlp.fc1 if site_name == "weight" else points.sites[site_name].layers[0][0]
    seen: list[torch.Tensor] = []
    with Perturbing(gpt, {site_name: site("noise1", "0", coefficient=1.0)}, points=points):
        if site_name == "weight":
            handle = module.register_forward_pre_hook(
                lambda m, a: seen.append(m.weight - m._parameters["weight"])
            )
        else:
            handle = module.register_forward_hook(lambda m, a, y: seen.append(y.detach()))
        gpt(ids)
        handle.remove()
    return seen[0].detach()


def places(**of_second) -> tuple[Place, Place]:
    sizes = {f"{axis}_size": 2 for axis in of_second}
    first = Place(world_size=2, tp_ranks=(0, 1), **sizes)
    return first, replace(first, rank=1, **of_second)


@pytest.mark.parametrize("at", ["calculation", "system"])
@pytest.mark.parametrize("shards", ["none", "sequence", "callable"])
def test_tensor_parallel_processes_draw_alike_unless_each_holds_a_piece(
    gpt, ids, at: str, shards: str
) -> None:
    shapes: list[torch.Size] = []

    def tells(tensor: torch.Tensor) -> str:
        shapes.append(tensor.shape)
        return "sequence"

    source = Source(gpt.blocks[0], sequence_first=True, shards=tells if shards == "callable" else shards)
    first, second = (drawn(gpt, ids, at, place, source) for place in places(tp=1))
    assert torch.equal(first, second) == (shards == "none")
    # It is asked of the tensor as [B, S, *].
    assert all(shape == (8, 3, 16) for shape in shapes)
    assert bool(shapes) == (shards == "callable")


@pytest.mark.parametrize("at", ["weight", "calculation", "system"])
def test_replicas_draw_alike_for_weights_only(gpt, ids, at: str) -> None:
    first, second = (drawn(gpt, ids, at, place) for place in places(dp=1))
    assert torch.equal(first, second) == (at == "weight")


def test_the_marks_of_megatron_core_tell_which_weights_are_pieces(gpt, ids) -> None:
    weight = gpt.blocks[0].mlp.fc1.weight

    def alike(first: Place, second: Place) -> bool:
        return torch.equal(drawn(gpt, ids, "weight", first), drawn(gpt, ids, "weight", second))

    assert alike(*places(tp=1))
    weight.tensor_model_parallel = True
    assert not alike(*places(tp=1))
    assert alike(*places(dp=1))
    # Weights of experts, which expert-parallel processes do not share.
    weight.allreduce = False
    experts = [replace(place, dp_size=4, ep_size=2) for place in places(dp=1)]
    assert not alike(*experts)
    assert alike(experts[0], replace(experts[0], rank=2, dp=2))


@pytest.fixture
def mesh():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,), mesh_dim_names=("tp",))
    distributed.destroy_process_group()


@pytest.mark.parametrize("placement", [Replicate(), Shard(0), Partial()], ids=str)
def test_an_output_that_is_still_distributed_is_perturbed_in_place_of_its_piece(mesh, placement) -> None:
    module = nn.Identity()
    points = ModelPoints((module,), {"layers": 1, "dtype": "float32"}, {}, sites_of(system={0: [module]}))
    plan = perturb_plan({"sites": {"system": site("noise2", coefficient=0.5)}}, points)
    warnings: list[str] = []
    installed = install_perturbations(points, plan, HandClock(), warnings.append)
    local = torch.ones(4, 3, requires_grad=True)
    given = DTensor.from_local(local, mesh, [placement], run_check=False)
    output = module(given)
    installed()
    assert (type(output), output.placements, output.shape) == (DTensor, (placement,), (4, 3))
    if placement.is_partial():
        # Parts of a sum: noise in each would add up.
        assert torch.equal(output.to_local(), local)
        assert "its sum over the processes is not there yet" in warnings[0]
        return
    factor = output.to_local()
    assert 0.5 <= factor.min() < factor.max() <= 1.5
    (gradient,) = torch.autograd.grad(output.sum().to_local(), local)
    torch.testing.assert_close(gradient, factor)
    assert warnings == []
