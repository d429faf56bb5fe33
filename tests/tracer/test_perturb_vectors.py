"""Adding a vector to hidden states: the same files as of projections, the same hooks as every perturbation."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from perturbing import HandClock, site, snapshot
from test_perturb_outputs import Named, Odd
from torch import distributed, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from megalens.adapters import find_adapter, sites_of
from megalens.protocol import AddVector, NoOp, ProtocolError
from megalens.tracer import FlagPoints, ModelPoints, Place, Source
from megalens.tracer.perturb import install_perturbations, perturb_plan, site_infos
from megalens.tracer.perturb.arithmetic import FLOATS, perturbed

KIND = AddVector("v.npy", 3.0)
HIDDEN = 16


@pytest.fixture
def vectors(tmp_path: Path) -> torch.Tensor:
    """One vector a layer of the small model, in the file v.npy."""
    array = np.random.default_rng(0).normal(size=(2, HIDDEN)).astype(np.float32)
    np.save(tmp_path / "v.npy", array)
    return torch.from_numpy(array)


def added(name: str = "v.npy", layers: str = "all", **params) -> dict:
    return site("add_vector", layers, ("train",), vectors=name, **params)


def armed(points: ModelPoints, folder: Path, **sites):
    """Put it on, and return what takes it off with what it warned of."""
    plan = perturb_plan({"sites": sites}, points, [folder])
    warnings: list[str] = []
    return install_perturbations(points, plan, HandClock(), warnings.append), warnings


def outputs(module: nn.Module, run) -> torch.Tensor:
    seen: list[torch.Tensor] = []
    handle = module.register_forward_hook(lambda m, a, y: seen.append(y.detach().clone()))
    run()
    handle.remove()
    return seen[0]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_it_is_added_in_float32_at_least_and_rounded_once(dtype: torch.dtype) -> None:
    x = torch.randn(3, 5, 8, dtype=torch.float64).to(dtype)
    x[0, 0, :3] = torch.tensor([math.nan, math.inf, -math.inf])
    vector = torch.randn(8)
    got = perturbed(x, KIND, (), vector)
    wide = x.double() + vector.double() if dtype is torch.float64 else x.float() + vector
    assert got.dtype == dtype
    finite = x.isfinite()
    assert torch.equal(got[finite], wide.to(dtype)[finite])
    assert torch.equal(got.view(FLOATS[dtype])[~finite], x.view(FLOATS[dtype])[~finite])


def test_its_gradient_is_one_and_nothing_is_read_back() -> None:
    with FakeTensorMode() as mode:
        x = mode.from_tensor(torch.zeros(2, 8)).requires_grad_()
        perturbed(x, KIND, (), mode.from_tensor(torch.ones(8))).sum().backward()
    x = torch.randn(2, 8, requires_grad=True)
    perturbed(x, KIND, (), torch.randn(8)).sum().backward()
    assert torch.equal(x.grad, torch.ones(2, 8))


@pytest.mark.parametrize("at", ["system", "calculation"])
@pytest.mark.parametrize("normalise", [True, False])
def test_each_position_of_a_layer_moves_by_the_layers_vector(
    gpt, ids, vectors, tmp_path: Path, at: str, normalise: bool
) -> None:
    module = gpt.blocks[1] if at == "system" else gpt.blocks[1].mlp.fc2
    points = find_adapter(gpt).points(gpt)
    clean = outputs(module, lambda: gpt(ids))
    installed, warnings = armed(
        points, tmp_path, **{at: added(layers="1", coefficient=-2.5, normalise=normalise)}
    )
    moved = outputs(module, lambda: gpt(ids))
    installed()
    v = torch.nn.functional.normalize(vectors[1], dim=0) if normalise else vectors[1]
    assert torch.equal(moved, clean + -2.5 * v)
    assert (installed.calls, installed.errors, warnings) == (1, 0, [])


def test_one_vector_of_a_file_is_added_in_every_layer(gpt, ids, tmp_path: Path) -> None:
    vector = torch.randn(HIDDEN)
    np.save(tmp_path / "v.npy", vector.numpy())
    points = find_adapter(gpt).points(gpt)
    installed, _ = armed(points, tmp_path, calculation=added(normalise=False))
    states = [block.mlp.fc2(torch.zeros(1, 4 * HIDDEN)) for block in gpt.blocks]
    installed()
    for state, block in zip(states, gpt.blocks, strict=True):
        assert torch.equal(state, block.mlp.fc2(torch.zeros(1, 4 * HIDDEN)) + vector)


def test_disarmed_the_model_is_as_it_was_bit_by_bit(gpt, ids, vectors, tmp_path: Path) -> None:
    before, clean = snapshot(gpt), gpt(ids)
    points = find_adapter(gpt).points(gpt)
    installed, _ = armed(points, tmp_path, system=added(coefficient=9.0), calculation=added())
    assert not torch.equal(gpt(ids), clean)
    installed()
    assert snapshot(gpt) == before
    assert torch.equal(gpt(ids), clean)


def test_the_first_of_several_outputs_is_moved_in_half_precision(gpt, vectors, tmp_path: Path) -> None:
    points = find_adapter(gpt).points(gpt)
    x = torch.randn(2, 3, HIDDEN).bfloat16()
    for output in (x, (x, None, "b"), [x, "b"], Named(x, "b")):
        odd = Odd(output)
        here = replace(points, sites={"system": type(points.sites["system"])({1: (odd,)})})
        installed, warnings = armed(here, tmp_path, system=added(normalise=False))
        got = odd()
        installed()
        assert (type(got), warnings) == (type(output), [])
        first = got if isinstance(got, torch.Tensor) else got[0]
        assert torch.equal(first, (x.float() + vectors[1]).bfloat16())


def test_a_vector_of_another_width_is_refused_with_both_shapes(gpt, tmp_path: Path) -> None:
    points = find_adapter(gpt).points(gpt)
    for shape in ((2, 15), (3, HIDDEN), (15,), (2, 2, HIDDEN)):
        np.save(tmp_path / "v.npy", np.ones(shape))
        with pytest.raises(ProtocolError) as caught:
            perturb_plan({"sites": {"system": added()}}, points, [tmp_path])
        error = caught.value
        assert (error.code, error.field) == ("bad-vectors", "perturb.sites.system.kind.params.vectors")
        assert (error.expected, error.got) == ("[16] or [2, 16]", str(list(shape)))
        assert "expected [16] or [2, 16], found" in error.message


def test_a_width_that_only_a_forward_pass_shows_is_said_and_the_tensor_passes(
    vectors, tmp_path: Path
) -> None:
    module = nn.Identity()
    points = ModelPoints((module,), {"layers": 2, "dtype": "float32"}, {}, sites_of(system={0: [module]}))
    installed, warnings = armed(points, tmp_path, system=added())
    x = torch.ones(1, 2, 8)
    assert module(x) is x
    installed()
    assert "a vector of 16 values cannot be added to a tensor of shape [1, 2, 8]" in warnings[0]


def test_weights_and_files_outside_are_refused_in_words(gpt, vectors, tmp_path: Path) -> None:
    points = find_adapter(gpt).points(gpt)
    with pytest.raises(
        ProtocolError, match="cannot be done at the site weight, only at calculation or"
    ) as caught:
        perturb_plan({"sites": {"weight": added()}}, points, [tmp_path])
    assert caught.value.field == "perturb.sites.weight.kind.name"
    with pytest.raises(ProtocolError, match="No folder is allowed for vectors"):
        perturb_plan({"sites": {"system": added()}}, points)
    kinds = {info["name"]: [kind["name"] for kind in info["kinds"]] for info in site_infos(points)}
    assert [site for site, names in kinds.items() if "add_vector" in names] == ["calculation", "system"]


def test_a_run_is_steered_and_what_it_says_of_itself_can_be_sent_again(
    gpt, ids, vectors, tmp_path: Path, traced, small_hub
) -> None:
    tracer = traced(
        gpt, flags={"HiddenStates": NoOp()}, samples="all", allow=["perturb"], vectors_folders=[tmp_path]
    )
    with tracer.step():
        gpt(ids)
    clean = next(row for row in small_hub.next_rows(2) if row["layer"] == 1)
    setting = {"sites": {"system": added(layers="1", coefficient=4)}, "steps": 1}
    tracer.configure({"flags": {}, "perturb": setting})
    for _ in range(2):
        with tracer.step():
            gpt(ids)
    kind = {"name": "add_vector", "params": {"vectors": "v.npy", "coefficient": 4.0, "normalise": True}}
    steered, again = (row for row in small_hub.next_rows(4) if row["layer"] == 1)
    expected = np.reshape(clean["values"], clean["shape"]).astype(np.float32)
    expected = expected + (4 * torch.nn.functional.normalize(vectors[1], dim=0)).numpy()
    np.testing.assert_array_equal(
        np.reshape(steered["values"], steered["shape"]).astype(np.float32), expected
    )
    assert again["values"] == clean["values"]
    complete = perturb_plan(setting, tracer.points, [tmp_path]).setting
    assert complete["sites"]["system"]["kind"] == kind
    assert perturb_plan(complete, tracer.points, [tmp_path]).setting == complete


@pytest.fixture
def mesh():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,), mesh_dim_names=("tp",))
    distributed.destroy_process_group()


@pytest.mark.parametrize("placement", [Replicate(), Shard(0), Shard(1), Shard(2)], ids=str)
def test_an_output_that_is_still_distributed_moves_by_what_belongs_to_its_piece(
    mesh, placement, vectors, tmp_path: Path
) -> None:
    module = nn.Identity()
    points = ModelPoints((module,), {"layers": 2, "dtype": "float32"}, {}, sites_of(system={1: [module]}))
    installed, warnings = armed(points, tmp_path, system=added(normalise=False))
    local = torch.randn(2, 3, HIDDEN)
    output = module(DTensor.from_local(local, mesh, [placement], run_check=False))
    installed()
    assert (output.placements, warnings) == ((placement,), [])
    assert torch.equal(output.to_local(), local + vectors[1])


@pytest.mark.parametrize("shards", ["none", "sequence", "features"])
def test_a_tensor_parallel_process_adds_what_belongs_to_its_features(
    gpt, vectors, tmp_path: Path, shards: str
) -> None:
    module = nn.Identity()
    flag = FlagPoints({1: (Source(module, features=(HIDDEN,), shards=shards),)})
    for tp in (0, 1):
        place = Place(rank=tp, tp=tp, world_size=2, tp_size=2, tp_ranks=(0, 1))
        points = ModelPoints(
            (module,),
            {"layers": 2, "dtype": "float32"},
            {"HiddenStates": flag},
            sites_of(system={1: [module]}),
            place,
        )
        installed, warnings = armed(points, tmp_path, system=added(normalise=False))
        x = torch.randn(2, 3, HIDDEN // 2 if shards == "features" else HIDDEN)
        y = module(x)
        installed()
        own = vectors[1].chunk(2)[tp] if shards == "features" else vectors[1]
        assert (torch.equal(y, x + own), warnings) == (True, [])
