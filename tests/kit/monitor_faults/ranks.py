"""Faults in trainings by several processes of torch.distributed: a reduction left out or scaled, replicas that come apart, parts of a batch that are missing."""

from __future__ import annotations

import math
import pickle
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

import megalens
from megalens.demo.model import GPT, GPTConfig
from megalens.demo.train import Windows, load_corpus

from .judging import Verdict, false_by_step, verdict_of
from .reaching import flip, in_gradient, in_output, put, reach
from .training import Fault, PeerRules

__all__ = ["FAULTS", "RanksFault", "healthy", "trained", "verdicts"]

AT, AFTER, SEQUENCE, BATCH = 40, 20, 16, 8


@dataclass(frozen=True)
class RanksFault(Fault):
    """A fault on one rank or all.

    Attributes
    ----------
    ranks : int
        How many processes train.
    who : int
        On which of them it is put; -1 on all.
    """

    first: int = AT
    ranks: int = 2
    who: int = -1


@dataclass
class _Replica:
    """The training of one process."""

    rank: int
    ranks: int
    step: int = 0
    parts: int = 2
    given: str = ""
    """What is wrong with the reduction of this step."""
    alone: bool = False
    last: Any = None
    ids: Any = None
    model: Any = field(init=False)

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.model = GPT(GPTConfig(256, 2, 24, 2, sequence=SEQUENCE))

    def weight(self, name: str) -> nn.Parameter:
        return dict(self.model.named_parameters())[name]

    def reduced(self, bucket: Any) -> Any:
        """Average a bucket over the ranks, or what the fault makes of it."""
        own = bucket.buffer().clone()
        mean = own.clone()
        if self.given == "half precision":
            mean = (mean * 2.0**26).half().float() / 2.0**26
        if self.given == "left out":
            mean.zero_()
        distributed.all_reduce(mean)
        mean /= self.ranks
        found = {"skipped": own, "summed": mean * self.ranks, "halved": mean / 2}.get(self.given, mean)
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(found)
        return future

    def run(self, fault: RanksFault | None, steps: int) -> tuple[list[Any], list[int]]:
        """Train, and return the alarms and the steps in which the peer's rules reported anything."""
        reach = fault.reach if fault and fault.who in (-1, self.rank) else lambda training, where: None
        if fault and fault.who in (-1, self.rank):
            fault.begin(self)  # type: ignore[arg-type]
        peer = PeerRules()
        model = DistributedDataParallel(self.model)
        # torch refuses annotations that are texts.
        model.register_comm_hook(None, lambda state, bucket: self.reduced(bucket))
        self.optimizer = torch.optim.AdamW(model.parameters(), 1e-3, betas=(0.9, 0.95), weight_decay=0.1)
        windows = Windows(load_corpus().train, SEQUENCE - 1, 100 + self.rank)
        with megalens.monitor(model, self.optimizer, activation=1, hub=None, rules=[peer]) as monitor:
            for self.step in range(1, steps + 1):
                for group in self.optimizer.param_groups:
                    group["lr"] = 1e-3 * min(1.0, self.step / 20)
                self.ids = windows.random(BATCH)
                reach(self, "data")  # type: ignore[arg-type]
                with monitor.step():
                    self.optimizer.zero_grad()
                    batches = self.ids.chunk(self.parts)
                    for ids in batches[:-1]:
                        with model.no_sync():
                            self._loss(model, ids).backward()
                    loss = self._loss(model, batches[-1])
                    loss.backward()
                    reach(self, "update")  # type: ignore[arg-type]
                    self.optimizer.step()
                    reach(self, "weights")  # type: ignore[arg-type]
                    monitor.tracer.log(loss=loss)
        return monitor.alarms, sorted(peer.steps)

    def _loss(self, model: Any, ids: torch.Tensor) -> torch.Tensor:
        logits = model(ids)
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()) / self.parts


_reach = partial(reach, first=AT)
_once = partial(reach, first=AT, last=AT)
_in_output, _in_gradient = partial(in_output, at=AT), partial(in_gradient, at=AT)


def _given(what: str, *, once: bool = False) -> Any:
    def reach(training: Any, here: str) -> None:
        if here == "data":
            training.given = what if training.step == AT or (training.step > AT and not once) else ""

    return reach


def _stale(training: Any, where: str) -> None:
    if training.step == AT and where == "update":
        training.last = {name: each.detach().clone() for name, each in training.model.named_parameters()}
    elif training.step == AT and where == "weights":
        with torch.no_grad():
            for name, each in training.model.named_parameters():
                each.copy_(training.last[name])


_FC1, _QKV = "blocks.1.mlp.fc1", "blocks.0.attention.qkv"

FAULTS: tuple[RanksFault, ...] = (
    RanksFault("reduction skipped on rank 1 of 2", _given("skipped"), direction="reduction update", rank=1, who=1),
    RanksFault("reduction skipped on rank 2 of 3 in one step", _given("skipped", once=True), direction="reduction update", rank=2, who=2, ranks=3),
    RanksFault("reduction skipped on all of 2", _given("skipped"), direction="reduction update"),
    RanksFault("gradients summed instead of averaged on 2", _given("summed"), direction="reduction optimizer"),
    RanksFault("gradients halved on rank 1 of 3", _given("halved"), direction="reduction", rank=1, who=1, ranks=3),
    RanksFault("gradients of rank 1 of 2 left out of the reduction", _given("left out"), direction="reduction"),
    RanksFault("gradients reduced in half precision overflow on 2", _given("half precision"), direction="reduction", value=True),
    RanksFault("stale replica on rank 1 of 2", _stale, direction="update", rank=1, who=1),
    RanksFault("stale replica on rank 3 of 4", _stale, direction="update", rank=3, who=3, ranks=4),
    RanksFault("flipped bit in a weight of rank 1 of 2", _once("weights", lambda t: flip(30)(t.weight(f"{_FC1}.weight"))), module=_FC1, direction="update", rank=1, who=1, value=True),
    RanksFault("a weight of rank 2 of 3 is off by one part in a thousand", _once("weights", lambda t: t.weight(f"{_QKV}.weight").mul_(1.001)), module=_QKV, direction="update", rank=2, who=2, ranks=3, value=True),
    RanksFault("NaN in an output of rank 1 of 2", begin=_in_output(_FC1, put(math.nan)), module=_FC1, direction="forward", rank=1, who=1, value=True),
    RanksFault("infinity in an output of rank 2 of 3", begin=_in_output(_QKV, put(math.inf)), module=_QKV, direction="forward", rank=2, who=2, ranks=3, value=True),
    RanksFault("output of zeros on rank 1 of 3", begin=_in_output(_FC1, lambda v: v.zero_()), module=_FC1, direction="forward", rank=1, who=1, ranks=3, value=True),
    RanksFault("NaN in a gradient of rank 1 of 2, before the reduction", begin=_in_gradient(f"{_FC1}.weight", put(math.nan)), module=_FC1, direction="backward reduction", rank=1, who=1, value=True),
    RanksFault("micro-batch dropped on rank 1 of 2", _reach("data", lambda t: setattr(t, "ids", t.ids[: BATCH // 2])), direction="forward", rank=1, who=1),
    RanksFault("a quarter of the batch dropped on rank 2 of 3", _reach("data", lambda t: setattr(t, "ids", t.ids[: 3 * BATCH // 4])), direction="forward", rank=2, who=2, ranks=3),
    RanksFault("broken tokenizer on rank 1 of 3", _reach("data", lambda t: setattr(t, "ids", (t.ids * 7 + 13) % 256)), rank=1, who=1, ranks=3),
    RanksFault("learning rate × 10 on rank 1 of 2", _reach("data", lambda t: t.optimizer.param_groups[0].update(lr=1e-2)), direction="optimizer update", rank=1, who=1),
    RanksFault("lost optimizer state on rank 1 of 2", _once("update", lambda t: t.optimizer.state.clear()), direction="optimizer update", rank=1, who=1),
)  # fmt: skip


def verdicts(faults: Iterable[RanksFault]) -> list[Verdict]:
    """Return what became of each fault, all with the same number of processes in one job."""
    by_ranks: dict[int, list[RanksFault]] = {}
    for fault in faults:
        by_ranks.setdefault(fault.ranks, []).append(fault)
    found = []
    for ranks, some in by_ranks.items():
        for name, given in zip(
            [f.name for f in some], _job(ranks, [f.name for f in some], AT + AFTER), strict=True
        ):
            fault = next(f for f in some if f.name == name)
            found.append(verdict_of(fault, *given))
    return found


def healthy(ranks: int, steps: int) -> tuple[int, int, list[str]]:
    """Return what :func:`.running.false_alarms` does, of a training by so many processes."""
    ((alarms, peer),) = _job(ranks, ["nothing"], steps)
    return steps, len(peer), [*false_by_step(f"healthy, {ranks} ranks", alarms).values()]


def trained(rank: int, name: str, steps: int = AT + AFTER) -> tuple[list[Any], list[int]]:
    """Train with a fault of this name, or with none, as one process of a group; return what :meth:`_Replica.run` does."""
    by_name = {fault.name: fault for fault in FAULTS}
    return _Replica(rank, distributed.get_world_size()).run(by_name.get(name), steps)


def _job(ranks: int, names: list[str], steps: int) -> list[tuple[list[Any], list[int]]]:
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(_rank, (ranks, folder, names, steps), nprocs=ranks)
        results: list[tuple[list[Any], list[int]]] = pickle.loads(Path(folder, "found").read_bytes())
        return results


def _rank(rank: int, ranks: int, folder: str, names: list[str], steps: int) -> None:
    torch.set_num_threads(1)
    store = distributed.FileStore(f"{folder}/store", ranks)
    distributed.init_process_group(
        "gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=120)
    )
    found = []
    for name in names:
        found.append(trained(rank, name, steps))
        print(f"{ranks} ranks: {name}", file=sys.stderr) if not rank else None
    if rank == 0:
        Path(folder, "found").write_bytes(pickle.dumps(found))
    distributed.barrier()
    distributed.destroy_process_group()
