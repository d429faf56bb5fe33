"""One process of a small job that trains in lockstep, as data-parallel training does, until it is told to stop."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
from pathlib import Path

import torch
from torch import distributed

import megalens
from megalens.demo.model import GPT, GPTConfig


def enter(namespace: str) -> None:
    """Go into a network namespace, before there is another thread; what forks for this process would stay behind."""
    with open(f"/run/netns/{namespace}") as network:
        failed = ctypes.CDLL(None, use_errno=True).setns(network.fileno(), 0x40000000)
    if failed:
        raise OSError(ctypes.get_errno(), f"setns {namespace}")
    os.environ["MEGALENS_TEST_COLD"] = "1"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--allow", default="")
    parser.add_argument("--flags", default="{}")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=1 << 30, help="end after so many, without being told")
    parser.add_argument("--master", help="address and port where the processes meet; a file when absent")
    parser.add_argument("--hub-host", default="127.0.0.1")
    parser.add_argument("--no-hooks", default="", help="a flag whose modules take no hooks on rank 1")
    parser.add_argument("--namespace", help="the network in which it is, and the hub that it starts")
    args = parser.parse_args()
    if args.namespace:
        enter(args.namespace)
    torch.set_num_threads(1)
    if args.master:
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = args.master.split(":")
        distributed.init_process_group("gloo", rank=args.rank, world_size=args.world)
    else:
        store = distributed.FileStore(str(args.folder / "store"), args.world)
        distributed.init_process_group("gloo", rank=args.rank, world_size=args.world, store=store)
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=50, layers=args.layers, hidden=16, heads=2, sequence=12))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    tracer = megalens.trace(
        model,
        name="job",
        flags=json.loads(args.flags),
        allow=args.allow.split(",") if args.allow else [],
        record=args.folder / "runs" if args.rank == 0 else None,
        linger=0.2,
        hub_host=args.hub_host,
    )
    if args.no_hooks and args.rank == 1:
        for sources in tracer.points.flags[args.no_hooks].layers.values():
            sources[0].module.register_forward_hook = None
    losses = []
    rng = torch.Generator().manual_seed(args.rank)
    stop = torch.zeros(1)
    watched: list[bool] = []
    while not stop.item():
        with tracer.step():
            ids = torch.randint(0, 50, (2, 8), generator=rng)
            loss = model(ids).square().mean()
            loss.backward()
            for parameter in model.parameters():
                distributed.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            tracer.log(loss=loss)
            done = (args.folder / "stop").exists() or len(losses) >= args.steps
            looked_at = tracer._coordinator.worker.watched
            if watched[-1:] != [looked_at]:
                watched.append(looked_at)
                (args.folder / f"watched-{args.rank}").write_text(json.dumps(watched))
            stop.fill_(done and args.rank == 0)
            distributed.all_reduce(stop)
    tracer.close()
    print(json.dumps({"rank": args.rank, "losses": losses, "status": tracer.status()}))
    sys.stdout.flush()
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
