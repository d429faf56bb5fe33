"""Models to be compiled, ways to compile them, and a training that says what came of it."""

import torch
from torch import nn

from megalens import NoOp, Tile
from megalens.adapters import Adapter
from megalens.demo.model import GPT, GPTConfig

FLAGS = {"QKV_mat_mul": NoOp(), "MLP1_mat_mul": Tile(2), "MLP2_mat_mul": NoOp(), "HiddenStates": NoOp()}
BOTH = {name: {"compressor": each, "passes": ["forward", "backward"]} for name, each in FLAGS.items()}
# Few places for probes: compiling them takes longer than compiling the model.
FEW = Adapter(layer="blocks.{i}", fc1="mlp.fc1", fc2="mlp.fc2", heads=2)
IDS = torch.randint(0, 30, (2, 6), generator=torch.Generator().manual_seed(3))


def small(layers: int = 2, seed: int = 0) -> GPT:
    torch.manual_seed(seed)
    return GPT(GPTConfig(vocabulary=30, layers=layers, hidden=8, heads=2, sequence=8))


def hidden_of(model: GPT, ids: torch.Tensor = IDS) -> list[torch.Tensor]:
    """Return what each layer gives, as hooks of torch see it in the model uncompiled."""
    seen: list[torch.Tensor] = []
    for block in model.blocks:
        block.register_forward_hook(lambda module, given, output: seen.append(output.detach().clone()))
    with torch.no_grad():
        model(ids)
    return seen


def recompiled() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def whole(model):
    return torch.compile(model, fullgraph=True, backend="aot_eager")


def in_place(model):
    model.compile(fullgraph=True, backend="aot_eager")
    return model


def blocks(model):
    for block in model.blocks:
        block.compile(fullgraph=True, backend="aot_eager")
    return model


def forward(model):
    model.forward = torch.compile(model.forward, fullgraph=True, backend="aot_eager")
    return model


def plain(model):
    return model


WAYS = {"whole": whole, "in place": in_place, "forward": forward, "blocks": blocks}


class Recomputed:
    """A forward that is computed again in the backward pass."""

    def __init__(self, forward):
        self.forward = forward

    def __call__(self, *args):
        return torch.utils.checkpoint.checkpoint(self.forward, *args, use_reentrant=False)


def train(run, model, tracer, steps=2, micro_batches=2):
    """Take steps of several micro-batches; returns the losses and the gradients of the last one."""
    losses = []
    for _ in range(steps):
        with tracer.step():
            model.zero_grad()
            for ids in (IDS, IDS.flip(0))[:micro_batches]:
                loss = nn.functional.cross_entropy(run(ids).flatten(0, 1), ids.flatten())
                loss.backward()
                losses.append(loss.item())
    return losses, [p.grad.clone() for p in model.parameters() if p.grad is not None]


def rows_of(hub, tracer):
    tracer.close()
    hub.next("goodbye")
    found = {}
    while not hub.rows.empty():
        row = hub.rows.get()
        key = tuple(row[name] for name in ("step", "micro_batch", "pass", "flag", "part", "layer"))
        assert key not in found
        found[key] = row
    return found
