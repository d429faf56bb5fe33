"""Perturbations on the demo's model: what a forward and a backward pass do, and that the model is left as it was."""

import copy
from itertools import pairwise

import pytest
import torch
from perturbing import HandClock, Perturbing, site, snapshot
from torch import nn
from torch.utils.checkpoint import checkpoint

from megalens import NoOp
from megalens.demo.model import GPT, GPTConfig

EVERYWHERE = {
    "weight": site("noise2", coefficient=0.5),
    "calculation": site("noise1", coefficient=0.1),
    "system": site("noise2", coefficient=0.5),
}
KINDS = {
    "noise1": {"coefficient": 0.1},
    "noise2": {"coefficient": 0.5},
    "bit_flip": {"rate": 0.2, "bit": 22},
    "offset": {"coefficient": 0.1, "fraction": 0.5},
}
SITES = tuple(EVERYWHERE)


def grads(model: nn.Module) -> dict[str, torch.Tensor]:
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def seen_weights(model: GPT, found: dict[str, torch.Tensor]) -> list:
    """Keep the weights that the linear modules compute with."""

    def keep(name: str):
        return lambda module, args: found.__setitem__(name, module.weight.detach().clone())

    linears = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.Linear)]
    return [module.register_forward_pre_hook(keep(name)) for name, module in linears]


@pytest.mark.parametrize("name", KINDS)
def test_perturbed_weights_are_computed_with_and_never_stored(gpt, ids, name: str) -> None:
    before = snapshot(gpt)
    clean = gpt(ids)
    found: dict[str, torch.Tensor] = {}
    in_between: list[dict] = []
    with Perturbing(gpt, {"weight": site(name, "1", **KINDS[name])}) as on:
        handles = seen_weights(gpt, found)
        fc2 = gpt.blocks[1].mlp.fc2
        handles.append(
            fc2.register_forward_pre_hook(lambda *_: in_between.append(copy.deepcopy(gpt.state_dict())))
        )
        noisy = gpt(ids)
        assert "weight" not in vars(fc2)
        for handle in handles:
            handle.remove()
        assert on.installed.calls == 4
    assert not torch.equal(noisy, clean)
    changed = {k for k, w in found.items() if not torch.equal(w, gpt.get_submodule(k).weight)}
    assert changed == {
        f"blocks.1.{linear}" for linear in ("attention.qkv", "attention.projection", "mlp.fc1", "mlp.fc2")
    }
    # A checkpoint that is taken in the middle of a forward pass holds the parameters.
    assert all(torch.equal(in_between[0][k], v) for k, v in gpt.state_dict().items())
    assert snapshot(gpt) == before
    assert torch.equal(gpt(ids), clean)


@pytest.mark.parametrize("at", SITES)
@pytest.mark.parametrize("name", KINDS)
def test_gradients_are_those_of_the_function_that_ran(gpt, ids, name: str, at: str) -> None:
    gpt = gpt.double()
    found: dict[str, torch.Tensor] = {}
    outputs: list[torch.Tensor] = []
    with Perturbing(gpt, {at: site(name, **KINDS[name])}):
        handles = seen_weights(gpt, found)
        loss = gpt.loss(ids)
        loss.backward()
        for handle in handles:
            handle.remove()
    got = grads(gpt)
    # The same function, written down without hooks: perturbed weights as parameters, and what was added to the tensors as constants.
    same = copy.deepcopy(gpt)
    with torch.no_grad():
        for key, weight in found.items():
            same.get_submodule(key).weight.copy_(weight)
    if at != "weight":
        with Perturbing(gpt, {at: site(name, **KINDS[name])}):
            places = [b.mlp.fc2 if at == "calculation" else b for b in gpt.blocks]
            handles = [p.register_forward_hook(lambda m, a, y: outputs.append(y.detach())) for p in places]
            with torch.no_grad():
                gpt.loss(ids)
            for handle in handles:
                handle.remove()
        twins = [b.mlp.fc2 if at == "calculation" else b for b in same.blocks]
        pending = list(outputs)

        def again(module, args, y):
            wanted = pending.pop(0)
            if name == "noise2":
                return y * (wanted / y.detach())
            return y + (wanted - y.detach())

        for twin in twins:
            twin.register_forward_hook(again)
    twin_loss = same.loss(ids)
    twin_loss.backward()
    torch.testing.assert_close(loss, twin_loss)
    expected = grads(same)
    for key, gradient in expected.items():
        holder = key.removesuffix(".weight")
        if at == "weight" and name == "noise2" and holder in found:
            gradient = gradient * (found[holder] / gpt.get_submodule(holder).weight.detach())
        torch.testing.assert_close(got[key], gradient)


@pytest.mark.parametrize("at", SITES)
@pytest.mark.parametrize("name", ["noise1", "noise2", "offset"])
def test_gradients_agree_with_finite_differences(at: str, name: str) -> None:
    torch.manual_seed(1)
    model = GPT(GPTConfig(vocabulary=6, layers=1, hidden=2, heads=1, sequence=4, expansion=1)).double()
    ids = torch.tensor([[1, 2, 3]])
    names = [name for name, _ in model.named_parameters() if name.endswith("weight") and "blocks" in name]

    def loss(*weights: torch.Tensor) -> torch.Tensor:
        given = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(model, given, (ids,))

    weights = [model.get_parameter(name).detach().clone().mul_(20).requires_grad_() for name in names]
    with Perturbing(model, {at: site(name, **KINDS[name])}):
        assert torch.autograd.gradcheck(loss, weights)


def test_the_same_seed_and_time_give_the_same_and_any_other_gives_another(gpt, ids) -> None:
    def run(seed: int = 0, **time) -> torch.Tensor:
        with Perturbing(gpt, EVERYWHERE, seed, clock=HandClock(**time)):
            return gpt(ids)

    assert torch.equal(run(), run())
    different = [run(), run(seed=1), run(step=2), run(micro_batch=1)]
    assert all(not torch.equal(a, b) for a, b in pairwise(different))
    # Numbers depend on the layer, the site and the module, and not on what else is perturbed.
    found: list[dict] = [{}, {}]
    for weights, sites in zip(
        found,
        ({"weight": site("noise1")}, {"weight": site("noise1", "1"), "system": site("offset")}),
        strict=True,
    ):
        with Perturbing(gpt, sites):
            handles = seen_weights(gpt, weights)
            gpt(ids)
            for handle in handles:
                handle.remove()
    noise = [{k: w - gpt.get_submodule(k).weight for k, w in weights.items()} for weights in found]
    for key in ("blocks.1.mlp.fc1", "blocks.1.attention.qkv"):
        assert torch.equal(noise[0][key], noise[1][key])
        assert noise[0][key].any()
    assert not torch.equal(noise[0]["blocks.0.mlp.fc1"], noise[0]["blocks.1.mlp.fc1"])


def test_the_random_numbers_of_the_training_are_left_alone() -> None:
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Dropout(0.5), GPT(GPTConfig(vocabulary=20, layers=1, hidden=8, heads=2, sequence=8))
    )
    model[1].embedding.register_forward_hook(lambda m, a, y: nn.functional.dropout(y, 0.5))
    ids = torch.randint(0, 20, (2, 5))

    def dropped() -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(4)
        model[1](ids)
        return torch.rand(3), torch.get_rng_state()

    alone = dropped()
    with Perturbing(model[1], {**EVERYWHERE, "system": site("bit_flip")}):
        beside = dropped()
    assert torch.equal(alone[0], beside[0])
    assert torch.equal(alone[1], beside[1])


def test_what_is_perturbed_leaves_the_layers_and_phases_that_were_not_asked_for(gpt, ids) -> None:
    clean = gpt(ids)
    clock = HandClock(phase="eval")
    sites = {name: {**given, "phases": ["generate"]} for name, given in EVERYWHERE.items()}
    with Perturbing(gpt, sites, clock=clock) as on:
        assert torch.equal(gpt(ids), clean)
        assert (on.installed.calls, on.installed.last_step) == (0, None)
        clock.phase, clock.step = "generate", 5
        assert not torch.equal(gpt(ids), clean)
        # Four weights, one MLP and one output in each of two layers.
        assert (on.installed.calls, on.installed.last_step) == (12, 5)
        assert on.installed.unfired() == []
    seen: list[torch.Tensor] = []
    handle = gpt.blocks[0].register_forward_hook(lambda m, a, y: seen.append(y))
    gpt(ids)
    with Perturbing(gpt, {"system": site("noise1", "1")}):
        gpt(ids)
    handle.remove()
    assert torch.equal(seen[0], seen[1])


def test_a_forward_pass_that_raises_leaves_the_weights(gpt, ids) -> None:
    before = snapshot(gpt)
    fc1 = gpt.blocks[0].mlp.fc1
    with Perturbing(gpt, EVERYWHERE):
        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            fc1(torch.zeros(2, 3))
        assert "weight" not in vars(fc1)
        blow = fc1.register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            gpt(ids)
        blow.remove()
        assert "weight" not in vars(fc1)

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        # No Exception, so that torch calls no hook: the next call, or taking the hooks off, takes it back.
        for end in (lambda: fc1(torch.zeros(2, 16)), lambda: None):
            stop = fc1.register_forward_pre_hook(interrupt)
            with pytest.raises(KeyboardInterrupt):
                gpt(ids)
            stop.remove()
            assert (
                gpt.state_dict()["blocks.0.mlp.fc1.weight"].data_ptr() == fc1._parameters["weight"].data_ptr()
            )
            end()
    assert snapshot(gpt) == before


def test_training_with_a_rate_of_nothing_changes_nothing(gpt, ids) -> None:
    before = snapshot(gpt)
    optimizer = torch.optim.SGD(gpt.parameters(), lr=0.0)
    clock = HandClock()
    with Perturbing(gpt, EVERYWHERE, clock=clock):
        for clock.step in range(1, 4):
            gpt.loss(ids).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert snapshot(gpt) == before
    assert all(a is b for a, b in zip(optimizer.param_groups[0]["params"], gpt.parameters(), strict=True))


@pytest.mark.parametrize("first", ["trace", "perturb"])
def test_what_is_traced_is_what_the_model_goes_on_with(gpt, ids, traced, small_hub, first: str) -> None:
    flags = {
        "HiddenStates": {"compressor": NoOp(), "samples": None},
        "MLP2_mat_mul": {"compressor": NoOp(), "samples": None},
    }
    sites = {"calculation": site("noise1", coefficient=1.0), "system": site("noise1", coefficient=1.0)}
    used: dict[tuple[str, int], torch.Tensor] = {}

    def keep(name: str, layer: int):
        return lambda module, args: used.__setitem__((name, layer), args[0].detach().clone())

    # What goes into the next layer, and into the last norm, is what the layer before it gave.
    gpt.blocks[1].norm1.register_forward_pre_hook(keep("HiddenStates", 0))
    gpt.norm.register_forward_pre_hook(keep("HiddenStates", 1))
    perturbing = Perturbing(gpt, sites)
    if first == "trace":
        tracer = traced(gpt, flags=flags)
        perturbing.__enter__()
        with tracer.step():
            gpt(ids)
    else:
        perturbing.__enter__()
        tracer = traced(gpt, flags=flags)
        with tracer.step():
            gpt(ids)
    rows = {(row["flag"], row["layer"]): row for row in small_hub.next_rows(4)}
    perturbing.__exit__(None)
    for key, tensor in used.items():
        assert rows[key]["values"] == tensor.flatten().tolist()
    with torch.no_grad():
        block = gpt.blocks[1]
        x = used["HiddenStates", 0]
        x = x + block.attention(block.norm1(x))
        unperturbed = block.mlp(block.norm2(x))
    difference = torch.tensor(rows["MLP2_mat_mul", 1]["values"]) - unperturbed.flatten()
    assert 0.8 < difference.std() < 1.2


def test_the_order_of_the_hooks_of_others_stays(gpt, traced) -> None:
    block = gpt.blocks[0]
    block.register_forward_hook(lambda *_: None)
    traced(gpt, flags={"HiddenStates": NoOp()}).step().__enter__()
    block.register_forward_hook(lambda *_: None)
    others = list(block._forward_hooks)
    assert len(others) == 3
    with Perturbing(gpt, {"system": site("noise1")}):
        now = list(block._forward_hooks)
        # Behind the framework's, in front of the one that traces.
        assert [now[0], *now[2:]] == others
    assert list(block._forward_hooks) == others


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("name", KINDS)
def test_recomputed_activations_are_perturbed_alike(gpt, ids, name: str, reentrant: bool) -> None:
    clock = HandClock()
    parts = [ids[:1], ids[1:]]

    def step(run) -> dict[str, torch.Tensor]:
        losses = []
        for clock.micro_batch, part in enumerate(parts):
            x = gpt.embedding(part) + gpt.positions(torch.arange(part.shape[1]))
            for block in gpt.blocks:
                x = run(block, x)
            losses.append(gpt.head(gpt.norm(x)).square().mean())
        # As in a pipeline: all forward passes, then all backward passes, for which the clock is put back.
        for clock.micro_batch, loss in enumerate(losses):
            loss.backward()
        return grads(gpt)

    with Perturbing(gpt, {at: site(name, **KINDS[name]) for at in SITES}, clock=clock) as on:
        kept = step(lambda block, x: block(x))
        calls = on.installed.calls
        recomputed = step(lambda block, x: checkpoint(block, x, use_reentrant=reentrant))
        assert on.installed.calls > 2 * calls
        assert on.installed.errors == 0
        assert all("weight" not in vars(module) for module in gpt.modules())
    assert set(kept) == set(recomputed)
    for key, gradient in kept.items():
        assert torch.equal(recomputed[key], gradient), key


def test_generation_is_perturbed_and_can_be_repeated(gpt) -> None:
    clock = HandClock(phase="generate")
    # Each forward pass of a generation is a micro-batch.
    gpt.register_forward_pre_hook(lambda *_: setattr(clock, "micro_batch", clock.micro_batch + 1))
    start = torch.tensor([[1, 2]])

    def text(seed: int, sites: dict) -> list[int]:
        clock.micro_batch = -1
        with Perturbing(gpt, sites, seed, clock=clock):
            return gpt.generate(start, 12, temperature=0.1)[0].tolist()

    sites = {"weight": site("noise1", phases=("generate",), coefficient=0.2)}
    assert text(1, sites) == text(1, sites)
    assert text(1, sites) != text(2, sites)
    assert text(1, sites) != text(1, {"weight": site("noise1", coefficient=0.2)})


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, None])
def test_it_works_under_autocast_and_without_gradients(gpt, ids, context) -> None:
    with Perturbing(gpt, EVERYWHERE) as on:
        if context is None:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = gpt.loss(ids)
            loss.backward()
            assert all(p.grad is not None and p.grad.isfinite().all() for p in gpt.blocks.parameters())
        else:
            with context():
                gpt(ids)
        assert (on.installed.calls, on.installed.errors) == (12, 0)


def test_what_is_copied_meanwhile_is_not_perturbed(gpt, ids) -> None:
    clean = gpt(ids)
    with Perturbing(gpt, EVERYWHERE) as on:
        twin = copy.deepcopy(gpt)
        assert not torch.equal(gpt(ids), clean)
        assert torch.equal(twin(ids), clean)
        on.installed()
        on.installed()
        assert torch.equal(twin(ids), clean)


def test_a_weight_that_is_stored_once_is_perturbed_alike_wherever_it_is_used(gpt, ids) -> None:
    gpt.blocks[1].mlp.fc1.weight = gpt.blocks[0].mlp.fc1.weight
    found: dict[str, torch.Tensor] = {}
    with Perturbing(gpt, {"weight": site("noise1", coefficient=1.0)}):
        handles = seen_weights(gpt, found)
        gpt(ids)
        for handle in handles:
            handle.remove()
    assert torch.equal(found["blocks.0.mlp.fc1"], found["blocks.1.mlp.fc1"])
    assert not torch.equal(found["blocks.0.mlp.fc2"], found["blocks.1.mlp.fc2"])
