"""Copies of a model that is traced, logged and perturbed: they come about at any time, have no hook of ours and are not traced."""

import copy
import io
import pickle
import subprocess
import sys

import pytest
import torch
from perturbing import Perturbing, site
from torch import nn

from megalens import Tile, log_statistics, trace
from megalens.tracer.own_hooks import OwnHook


def deep(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model)


def pickled(model: nn.Module) -> nn.Module:
    return pickle.loads(pickle.dumps(model))


def saved(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def kept(model: nn.Module) -> list:
    """What a model's modules have of hooks, and beside them."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    beside = ("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs")
    return [each for m in model.modules() for kind in (*kinds, *beside) for each in getattr(m, kind).values()]


def ours(model: nn.Module) -> int:
    return sum(isinstance(hook, OwnHook) for hook in kept(model))


FLAGS = {
    "HiddenStates": {"compressor": Tile(1), "passes": ["forward", "backward"]},
    "MLP1_mat_mul": Tile(1),
}
EVERY = {"param": 1, "grad": 1, "activation": 1, "dgrad": 1, "residual": 1, "residual_dgrad": 1}
called: list = []


def others_hook(module, args, output) -> None:
    """Somebody else's: whoever wants to is called in the middle of a pass."""
    for call in called:
        call()


@pytest.fixture
def in_the_middle():
    yield called
    called.clear()


@pytest.mark.parametrize("way", [copy.deepcopy, pickled, saved])
def test_a_model_is_copied_at_any_time_and_no_copy_has_a_hook_of_ours(
    gpt, ids, small_hub, in_the_middle, way
) -> None:
    optimizer = torch.optim.AdamW(gpt.parameters())
    gpt.blocks[0].register_forward_hook(others_hook)
    logger = log_statistics(gpt, optimizer, **EVERY, hub=small_hub.address, flags=FLAGS)
    copies = [way(gpt)]
    in_the_middle.append(lambda: copies.append(way(gpt)))
    with logger.tracer.step():
        copies.append(way(gpt))
        loss = gpt(ids).square().mean()
        in_the_middle.clear()
        copies.append(way(gpt))
        loss.backward()
        copies.append(way(gpt))
        assert ours(gpt) > 10
    copies += [way(gpt), way(copies[-1])]
    assert len(copies) == 7
    for each in copies:
        assert kept(each) == [others_hook]
        assert all(torch.equal(each.state_dict()[name], value) for name, value in gpt.state_dict().items())
    logger.close()
    assert kept(gpt) == [others_hook]


def test_a_copy_is_not_traced_and_the_model_is_as_before(gpt, ids, small_hub) -> None:
    twin = copy.deepcopy(gpt)
    seen: list[torch.Tensor] = []
    twin.blocks[1].register_forward_hook(lambda m, a, y: seen.append(y.detach().double().mean()))
    with trace(gpt, hub=small_hub.address, flags={"HiddenStates": Tile(1)}, layers="1") as tracer:
        for _ in range(2):
            with tracer.step():
                average = copy.deepcopy(gpt)
                gpt(ids)
                average(ids.flip(0))
                twin(ids)
    rows = small_hub.next_rows(2)
    assert [(row["step"], row["micro_batch"]) for row in rows] == [(1, 0), (2, 0)]
    assert [row["mean"] for row in rows] == pytest.approx([float(each) for each in seen], rel=1e-6)
    assert small_hub.rows.empty()


def test_a_saved_model_is_read_where_there_is_no_megalens(ids, small_hub, tmp_path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    own = Stateful()
    for module in (model[0], own):
        module.register_forward_hook(OwnHook(lambda *_: 1 / 0))
        module.register_forward_pre_hook(OwnHook(lambda *_: 1 / 0), with_kwargs=True)
    with (tmp_path / "model.pkl").open("wb") as file:
        pickle.dump(model, file)
    state = pickle.dumps(own.__getstate__())
    assert b"megalens" not in (tmp_path / "model.pkl").read_bytes() + state
    read = "import pickle, torch; m = pickle.load(open('model.pkl', 'rb')); print(m(torch.ones(1, 4)).shape)"
    ran = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.modules['megalens'] = None; {read}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "torch.Size([1, 2])"), ran.stderr


class Stateful(nn.Linear):
    """A module that gives a state of its own, with all that it has in it."""

    def __init__(self) -> None:
        super().__init__(4, 4)

    def __getstate__(self) -> dict:
        return self.__dict__.copy()


@pytest.mark.parametrize("way", [copy.deepcopy, pickled, saved])
def test_a_copy_of_a_module_with_a_state_of_its_own_calls_nothing_of_ours(way) -> None:
    model = Stateful()
    calls: list[int] = []
    model.register_forward_hook(OwnHook(lambda *_: calls.append(1)))
    model.register_forward_pre_hook(OwnHook(lambda *_: calls.append(2)), with_kwargs=True)
    found = way(model)
    x = torch.ones(2, 4)
    assert torch.equal(found(x), nn.functional.linear(x, model.weight, model.bias))
    assert (calls, ours(found)) == ([], 0)
    model(x)
    assert calls == [2, 1]


@pytest.mark.parametrize("way", [copy.deepcopy, pickled, saved])
def test_a_copy_of_a_perturbed_model_is_not_perturbed(gpt, ids, way) -> None:
    expected = gpt(ids)
    with Perturbing(gpt, {"system": site("noise1"), "weight": site("noise1")}):
        twin = way(gpt)
        assert not torch.equal(gpt(ids), expected)
        assert torch.equal(twin(ids), expected)
        assert kept(twin) == []


@pytest.mark.parametrize("way", [copy.deepcopy, pickled])
def test_an_optimizer_is_copied_while_its_steps_end_those_of_the_tracer(gpt, ids, small_hub, way) -> None:
    optimizer = torch.optim.AdamW(gpt.parameters())
    logger = log_statistics(gpt, optimizer, **EVERY, hub=small_hub.address)
    logger.tracer.wrap(optimizer)
    gpt(ids).square().mean().backward()
    optimizer.step()
    twin = way(optimizer)
    assert twin.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]
    assert not twin.__dict__.get("_optimizer_step_post_hooks")
    logger.close()
