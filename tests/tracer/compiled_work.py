"""Takes one step of a small compiled model in processes of their own, one after the other, each with other probes, and prints what each saw: ``python -m tests.tracer.compiled_work PROBES``."""

import json
import os
import sys

import torch

# What each process would import by itself.
import torch._inductor.compile_fx
from torch import nn

from megalens.tracer import ModelPoints
from megalens.tracer.graph_probes import GraphProbes, end_of

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def model() -> nn.Sequential:
    """Products of matrices alone: Inductor calls torch for them, and no C++ is compiled."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(3)))


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
    for places in json.loads(sys.argv[1]):
        process = os.fork()
        if not process:
            print(json.dumps(work(places)), flush=True)
            os._exit(0)
        os.waitpid(process, 0)
