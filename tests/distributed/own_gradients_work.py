"""What each process of a test of the gradients before their reduction does."""

from __future__ import annotations

import copy
import io
from contextlib import nullcontext, redirect_stderr
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import megalens
from megalens.demo.model import GPT, GPTConfig
from megalens.tracer.moments.measure import measure

__all__ = ["communicated", "own_gradients", "reduced", "sharded", "sharded_alarms", "sharded_by_megatron"]


def reduced(rank: int, at: int, wrong: str, who: int) -> tuple[list[float], list[tuple[Any, ...]]]:
    """Train replicas by two micro-batches, whose gradients one of them reduces wrongly in a step; losses, and what rank 0's monitor names. Without a step: no monitor."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=51, layers=2, hidden=16, heads=2, sequence=16))
    replica = DistributedDataParallel(model)
    step = 0

    def reduce(bucket: Any) -> Any:
        own = bucket.buffer().clone()
        mean = own.clone()
        distributed.all_reduce(mean)
        mean /= distributed.get_world_size()
        here = step == at and who in (-1, rank)
        kinds = {"skipped": own, "halved": mean / 2, "summed": mean * distributed.get_world_size()}
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(kinds[wrong] if here and wrong in kinds else mean)
        return future

    # torch refuses annotations that are texts.
    replica.register_comm_hook(None, lambda _, bucket: reduce(bucket))
    if wrong == "NaN":

        def spoil(gradient: torch.Tensor) -> torch.Tensor:
            return gradient * float("nan") if step == at and rank == who else gradient

        model.blocks[1].mlp.fc1.weight.register_hook(spoil)
    optimizer = torch.optim.AdamW(replica.parameters(), 1e-3)
    monitor = megalens.monitor(replica, optimizer, hub=None) if at else None
    losses = []
    for step in range(1, (at or 12) + 3):
        ids = torch.randint(0, 51, (4, 12), generator=torch.Generator().manual_seed(10 * step + rank))
        with monitor.step() if monitor else nullcontext():
            for last, part in enumerate(ids.chunk(2)):
                with nullcontext() if last else replica.no_sync():
                    logits = replica(part)
                    loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), part[:, 1:].flatten())
                    (loss / 2).backward()
                    losses.append(loss.item())
            optimizer.step()
            optimizer.zero_grad()
    if monitor is None:
        return losses, []
    monitor.close()
    return losses, [(a.step, a.rank, a.rule, a.direction, a.name) for a in monitor.alarms]


def own_gradients(rank: int, views: bool) -> tuple[Any, Any, str]:
    """Train replicas by two micro-batches; what the logger gives of each process's own gradients, and what plain torch does."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=51, layers=1, hidden=16, heads=2, sequence=16))
    alone = copy.deepcopy(model)
    replica = DistributedDataParallel(model, gradient_as_bucket_view=views)
    optimizer = torch.optim.SGD(replica.parameters(), 1e-3)
    found: list[Any] = []
    ids = torch.randint(0, 51, (4, 12), generator=torch.Generator().manual_seed(rank))
    statistics = megalens.log_statistics(
        replica, optimizer, grad=1, grad_unreduced=1, grad_accumulated=1, own=found.append, hub=None
    )
    with redirect_stderr(io.StringIO()) as said, statistics, statistics.step():
        for last, part in enumerate(ids.chunk(2)):
            with nullcontext() if last else replica.no_sync():
                replica(part).square().mean().backward()
        optimizer.step()
    expected = []
    for part in ids.chunk(2):
        alone(part).square().mean().backward()
        expected.append({name: measure([p.grad])[0].tolist() for name, p in alone.named_parameters()})
    [step] = found
    given = [
        (
            each.stat,
            each.micro_batch,
            each.rank,
            each.counted,
            dict(zip(each.names, each.rows.tolist(), strict=True)),
        )
        for each in step.readings
        if each.stat != "grad"
    ]
    return given, expected, said.getvalue()


def communicated(rank: int) -> tuple[Any, Any, bool]:
    """Call collectives in two steps, of which one is measured; what the logger gives of them, what plain copies say, and whether torch's functions are its own again."""
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    own, own_isend = distributed.all_reduce, distributed.isend
    found: list[Any] = []
    expected: dict[str, list[torch.Tensor]] = {}
    with megalens.log_statistics(model, grad=2, communication=2, own=found.append, hub=None) as statistics:
        for step in (1, 2):
            with statistics.step():
                expected = {}
                assert (distributed.all_reduce is own) == (step == 1)
                for scale in (1.0, 2.0):
                    values = torch.arange(6.0) * scale + rank
                    expected.setdefault("all_reduce/input0", []).append(values.clone())
                    distributed.all_reduce(values)
                    expected.setdefault("all_reduce/output0", []).append(values)
                gathered = [torch.empty(3) for _ in range(distributed.get_world_size())]
                distributed.all_gather(gathered, tensor=torch.full((3,), float(rank)))
                expected["all_gather/input0"] = [torch.full((3,), float(rank))]
                expected["all_gather/output0"] = gathered
                later = torch.ones(2) * rank
                expected["broadcast/input0"] = [later.clone()]
                distributed.broadcast(later, 0, async_op=True).wait()
                expected["broadcast/output0"] = [torch.zeros(2)]
                # A script's own name for torch's function is not seen, and can be mixed with those that are.
                ring = [torch.full((3,), float(rank + 5)), torch.empty(3)]
                sends = distributed.P2POp(own_isend, ring[0], 1 - rank)
                receives = distributed.P2POp(distributed.irecv, ring[1], 1 - rank)
                for work in distributed.batch_isend_irecv([sends, receives]):
                    work.wait()
                expected["batch_isend_irecv/input0"] = [torch.full((3,), float(rank + 5))]
                expected["batch_isend_irecv/output0"] = [torch.full((3,), float(6 - rank))]
                alone = torch.full((2,), float(rank + 1))
                sent = distributed.isend(alone, 1) if rank == 0 else distributed.irecv(alone, 0)
                sent.wait()
                expected["irecv/output0" if rank else "isend/input0"] = [torch.ones(2)]
                # Ids are no numbers to be measured.
                distributed.all_reduce(torch.ones(2, dtype=torch.long))
                model(torch.ones(1, 4)).sum().backward()
    [step] = found
    given = {
        name: row
        for each in step.readings
        if each.stat == "communication"
        for name, row in zip(each.names, each.rows.tolist(), strict=True)
    }
    plain = {name: measure([torch.cat(values)])[0].tolist() for name, values in expected.items()}
    return given, plain, distributed.all_reduce is own and distributed.isend is own_isend


def _sharded_gpt() -> tuple[GPT, GPT]:
    """A model as it is and the same cut over all processes."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=51, layers=2, hidden=16, heads=2, sequence=16))
    alone = copy.deepcopy(model)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model, alone


def _own(found: list[Any]) -> dict[str, list[float]]:
    return {
        name: row
        for step in found
        for each in step.readings
        if each.stat == "grad_unreduced"
        for name, row in zip(each.names, each.rows.tolist(), strict=True)
    }


def sharded(rank: int, parts: int, synced: bool) -> tuple[Any, Any, str]:
    """Train a model that ``fully_shard`` cuts; what the logger gives of each process's own gradients, what plain torch has, and what is said."""
    model, alone = _sharded_gpt()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    found: list[Any] = []
    ids = torch.randint(0, 51, (4, 12), generator=torch.Generator().manual_seed(rank))
    own = torch.distributed.fsdp._fully_shard._fsdp_param_group.foreach_reduce
    statistics = megalens.log_statistics(
        model, optimizer, grad=1, grad_unreduced=1, own=found.append, hub=None
    )
    with redirect_stderr(io.StringIO()) as said, statistics, statistics.step():
        for last, part in enumerate(ids.chunk(parts), 1):
            model.set_requires_gradient_sync(synced or last == parts)
            model(part).square().mean().backward()
            alone(part).square().mean().backward()
        optimizer.step()
    assert torch.distributed.fsdp._fully_shard._fsdp_param_group.foreach_reduce is own
    return (
        _own(found),
        {name: measure([p.grad])[0].tolist() for name, p in alone.named_parameters()},
        said.getvalue(),
    )


def sharded_alarms(rank: int, at: int) -> tuple[list[float], list[tuple[Any, ...]]]:
    """Train a model that ``fully_shard`` cuts, and divide its gradients by a wrong number in one step; losses, and what rank 0's monitor names. Without a step: no monitor."""
    model, _ = _sharded_gpt()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    monitor = megalens.monitor(model, optimizer, hub=None) if at else None
    losses = []
    for step in range(1, 15):
        ids = torch.randint(0, 51, (4, 12), generator=torch.Generator().manual_seed(10 * step + rank))
        for module in (*model.blocks, model):
            # Gloo cannot divide by itself.
            module.set_force_sum_reduction_for_comms(True)
            module.set_gradient_divide_factor(4.0 if step == at else 2.0)
        with monitor.step() if monitor else nullcontext():
            logits = model(ids)
            loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
            loss.backward()
            losses.append(loss.item())
            optimizer.step()
            optimizer.zero_grad()
    if monitor is None:
        return losses, []
    monitor.close()
    return losses, [(a.step, a.rule, a.sentence) for a in monitor.alarms]


def sharded_by_megatron(rank: int) -> list[dict[str, dict[str, list[float]]]]:
    """Train steps of a job of Megatron-Core's with a distributed optimizer; its own and its reduced gradients."""
    from megatron_job import MegatronJob
    from shape import Optimizer, Shape

    job = MegatronJob(Shape(dp=2), Optimizer("adam", dtype="bfloat16", distributed=True, clip=0.0))
    found: list[Any] = []
    statistics = megalens.log_statistics(
        job.chunks[0], job.optimizer, grad=1, grad_unreduced=1, own=found.append, hub=None
    )
    for step in (1, 2):
        with statistics.step():
            job.train(step)
    statistics.close()
    job.close()
    return [
        {each.stat: dict(zip(each.names, each.rows.tolist(), strict=True)) for each in step.readings}
        for step in found
    ]
