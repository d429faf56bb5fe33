"""Takes one step of a small compiled model in a process of its own, with probes or without, and prints what it saw: ``python -m tests.tracer.compiled_work PROBES``."""

import json
import sys

import torch
from torch import nn
from torch._inductor import cpu_vec_isa

from megalens.tracer import ModelPoints
from megalens.tracer.graph_probes import GraphProbes, end_of

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh())


def work(places: list[int]) -> dict:
    body = model()
    seen: dict[int, list] = {}
    gradients: dict[int, list] = {}
    probes = GraphProbes(ModelPoints((body,), {"name": "x", "layers": 0}, {}), print) if places else None
    for at in places:
        probes.place(body[at], "output")
        end_of(body[at], "output").watch(
            lambda x, at=at: seen.update({at: x.tolist()}),
            lambda x, at=at: gradients.update({at: x.tolist()}),
        )
    # Code without vectors is made and compiled in a fraction of the time, and kept in the same way.
    cpu_vec_isa.valid_vec_isa_list = lambda: []
    loss = torch.compile(body, fullgraph=True)(X).square().sum()
    loss.backward()
    counters = torch._dynamo.utils.counters
    return {
        "seen": seen,
        "gradients": gradients,
        "loss": loss.item(),
        "hits": counters["aot_autograd"]["autograd_cache_hit"] + counters["inductor"]["fxgraph_cache_hit"],
    }


if __name__ == "__main__":
    print(json.dumps(work(json.loads(sys.argv[1]))))
