"""Simulated jobs: what each rank of a TP × PP × DP training would record, with faults and clocks that are known.

The simulation shares nothing with the code that it tries. It plays a one-forward-one-backward schedule op by op in true time, for all tensor- and data-parallel ranks of a stage at once, and then reads the times off clocks with offsets of seconds and a drift.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["Fault", "Job", "Truth", "simulate"]

Times = NDArray[np.float64]
_MS = 1e6


@dataclass(frozen=True)
class Fault:
    """What is wrong in the steps ``first`` to ``last``.

    Attributes
    ----------
    kind : str
        ``device``: passes and optimizer take ``factor`` as long on the ranks, ``forward`` and ``backward``: these passes do; ``data``, ``host`` and ``checkpoint``: the ranks wait ``factor`` - 1 of a step's compute longer for data, between two passes, or to save; ``link``: transfers between the two ranks take ``factor`` as long; ``stage``: all ranks of a stage compute as much more;
        ``step``: all ranks pause for as many times a step.
    ranks : tuple of int
    factor : float
    """

    kind: str
    ranks: tuple[int, ...]
    factor: float
    first: int
    last: int


@dataclass(frozen=True)
class Job:
    """A training to play. Ranks are numbered tensor-parallel first, then data-parallel, then by stage."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    micro_batches: int = 4
    layers: int = 2
    """of a stage"""
    steps: int = 30
    seed: int = 0
    faults: tuple[Fault, ...] = ()
    granularity: str = "phases"
    norm: bool = True
    """Whether the gradient norm is summed over all ranks, as Megatron does."""
    overlap: str = ""
    """``buckets``: gradients are reduced layer by layer in the last backward pass, as DDP does; ``shards``: weights are gathered a layer ahead and gradients reduced behind, as FSDP does."""
    node: int = 0
    """Ranks of a machine, which read one clock; 0: each has its own."""
    compute_ms: float = 4.0
    """One layer's forward pass."""
    transfer_ms: float = 0.3
    noise: float = 0.015
    """Of the duration of each computation (log-normal)."""
    devices: float = 0.005
    """By how much healthy devices differ (log-normal)."""
    drift_ppm: float = 50.0
    offset_s: float = 10.0

    @property
    def ranks(self) -> int:
        """How many ranks it has."""
        return self.tensor * self.pipeline * self.data


@dataclass(frozen=True)
class Truth:
    """What nobody can see: clocks, and when the steps were over.

    Attributes
    ----------
    offset_ns, drift : numpy.ndarray
        local time = true time · (1 + drift) + offset, float64 ``[ranks]``.
    step_ns : numpy.ndarray
        True duration of each step, float64 ``[steps]``.
    """

    offset_ns: Times
    drift: Times
    step_ns: Times

    def true(self, rank: Any, local: Any) -> Times:
        """Return the true times of local ones."""
        times: Times = (np.asarray(local, float) - self.offset_ns[rank]) / (1 + self.drift[rank])
        return times


@dataclass
class _Rows:
    columns: dict[str, list[NDArray[Any]]] = field(default_factory=dict)

    def add(self, rank: Any, start: Times, end: Times, **others: Any) -> None:
        ranks = np.asarray(rank).ravel()
        values = {"rank": ranks, "start": start.flatten(), "end": end.flatten(), **others}
        for name, value in values.items():
            column = np.asarray(value).flatten()
            self.columns.setdefault(name, []).append(
                column if len(column) == len(ranks) else np.repeat(column, len(ranks))
            )


_DEFAULTS: dict[str, Any] = {
    "chunk": -1,
    "micro_batch": -1,
    "name": "",
    "count": 1,
    "bytes": 0,
    "group": "",
    "peer": -1,
    "sequence": -1,
}


def simulate(job: Job) -> tuple[pa.Table, Truth]:
    """Play a job.

    Returns
    -------
    pyarrow.Table
        Rows of the stream ``spans``.
    Truth
    """
    return _Player(job).play()


class _Player:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.random = np.random.default_rng(job.seed)
        shape = (job.pipeline, job.data, job.tensor)
        self.rank = np.arange(job.ranks).reshape(shape)
        self.now = np.zeros(shape)
        self.device = np.exp(self.random.normal(0, job.devices, shape))
        self.stage = np.exp(self.random.normal(0, 0.01, (job.pipeline, 1, 1)))
        self.rows = _Rows()
        self.sequences: dict[Any, int] = {}
        self.step = 0
        self.slow = np.ones(shape)

    def play(self) -> tuple[pa.Table, Truth]:
        job, random = self.job, self.random
        durations = []
        for self.step in range(1, job.steps + 1):
            before = self.now.max()
            self._step()
            durations.append(self.now.max() - before)
        offset = random.uniform(-job.offset_s, job.offset_s, job.ranks) * 1e9 + 1e12
        drift = random.uniform(-job.drift_ppm, job.drift_ppm, job.ranks) * 1e-6
        node = np.arange(job.ranks) // max(job.node, 1) * max(job.node, 1)
        offset, drift = offset[node], drift[node]
        truth = Truth(offset, drift, np.array(durations))
        columns = {name: np.concatenate(each) for name, each in self.rows.columns.items()}
        for name in ("start", "end", "wait"):
            rank = columns["rank"]
            columns[name] = np.rint(columns[name] * (1 + drift[rank]) + offset[rank]).astype(np.int64)
        columns["blocked"] = columns["end"] - columns.pop("wait")
        asynchronous = columns["kind"] == "send"
        columns["blocked"][asynchronous] = 0
        columns["stage"] = (
            columns["rank"] // (job.data * job.tensor)
            if job.pipeline > 1
            else np.full(len(columns["rank"]), -1)
        )
        columns["device"] = np.full(len(columns["rank"]), "cpu")
        columns["clock"] = node[columns["rank"]] + 1 if job.node else np.zeros(len(columns["rank"]), np.int64)
        return pa.table({name: pa.array(column) for name, column in columns.items()}), truth

    # One step.

    def _step(self) -> None:
        job = self.job
        self.slow = self._of_faults("device")
        begin = self.now.copy()
        whole = job.compute_ms * _MS * job.layers * job.micro_batches * 3
        self.now += self._gap() + (self._of_faults("host") - 1) * whole
        paused = self._of_faults("step")
        if (paused > 1).any():
            start = self.now.copy()
            self.now += (paused - 1) * whole
            self._row(slice(None), start, "checkpoint")
        saved = self._of_faults("checkpoint")
        if (saved > 1).any():
            start = self.now.copy()
            self.now += (saved - 1) * whole
            self._row(saved > 1, start[saved > 1], "checkpoint")
        start = self.now[0].copy()
        self.now[0] += job.compute_ms * _MS * 0.02 * self._noise(self.now[0].shape, 0.3)
        self.now[0] += (self._of_faults("data")[0] - 1) * whole
        self._row(0, start, "data")
        self._schedule()
        if job.data > 1 and not job.overlap:
            for stage in range(job.pipeline):
                for t in range(job.tensor):
                    self._collective((stage, slice(None), t), "reduce_scatter", 4.0)
        if job.norm and job.ranks > 1:
            self._collective((slice(None), slice(None), slice(None)), "all_reduce", 0.1)
        start = self.now.copy()
        self.now += 0.5 * job.compute_ms * _MS * self.device * self.slow * self._noise(self.now.shape)
        self._row(slice(None), start, "optimizer")
        self._row(slice(None), begin, "step")

    def _schedule(self) -> None:
        job = self.job
        stages, count = job.pipeline, job.micro_batches
        queues = [list(_one_forward_one_backward(stage, stages, count)) for stage in range(stages)]
        done: dict[tuple[str, int, int], Times] = {}
        while any(queues):
            for stage, queue in enumerate(queues):
                while queue:
                    what, number = queue[0]
                    before = stage - 1 if what == "forward" else stage + 1
                    if 0 <= before < stages and (what, before, number) not in done:
                        break
                    queue.pop(0)
                    self._pass(stage, what, number, before, done)

    def _pass(
        self, stage: int, what: str, number: int, before: int, done: dict[tuple[str, int, int], Times]
    ) -> None:
        job = self.job
        if 0 <= before < job.pipeline:
            self._receive(stage, before, done[what, before, number])
        start = self.now[stage].copy()
        speed = self.device[stage] * self.slow[stage] * self._of_faults(what)[stage]
        ready: list[Times] = []
        shards = _Shards(self, stage) if job.overlap == "shards" and job.data > 1 else None
        # More to compute is something beside the layers, such as a loss over a large vocabulary.
        more = (self._of_faults("stage")[stage] - 1) * job.layers * job.compute_ms * _MS
        self.now[stage] += more * (1 if what == "forward" else 2) * self._noise(self.now[stage].shape)
        for layer in range(job.layers):
            began = self.now[stage].copy()
            work = job.compute_ms * _MS * (1 if what == "forward" else 2) * self.stage[stage]
            if shards is not None:
                shards.gather(layer)
            self.now[stage] += work * speed * self._noise(self.now[stage].shape)
            ready.append(self.now[stage].copy())
            if shards is not None and what == "backward":
                shards.reduce()
            if job.tensor > 1:
                for d in range(job.data):
                    self._collective((stage, d, slice(None)), "all_reduce", 1.0)
            if job.granularity == "layers":
                place = {"chunk": 0, "micro_batch": number}
                self._row(stage, began, what, name=f"layers.{stage * job.layers + layer}", **place)
        if shards is not None:
            shards.finish()
        self._row(stage, start, what, chunk=0, micro_batch=number)
        if (
            job.overlap == "buckets"
            and job.data > 1
            and (what, number) == ("backward", job.micro_batches - 1)
        ):
            self._buckets(stage, start, ready)
        after = stage + 1 if what == "forward" else stage - 1
        done[what, stage, number] = self.now[stage].copy()
        if 0 <= after < job.pipeline:
            began = self.now[stage].copy()
            self.now[stage] += 0.01 * _MS * self._noise(self.now[stage].shape, 0.2)
            name, peer = "isend", self.rank[after]
            self._row(
                stage,
                began,
                "send",
                name=name,
                peer=peer,
                sequence=self._number("send", stage, after),
                bytes=1 << 20,
            )

    def _receive(self, stage: int, before: int, sent: Times) -> None:
        job = self.job
        start = self.now[stage].copy()
        factor = np.ones(start.shape)
        for fault in self._now("link"):
            ends = {self.rank[stage][at] for at in np.ndindex(start.shape)} & {*fault.ranks}
            others = {int(each) for each in self.rank[before].ravel()} & {*fault.ranks}
            if ends and others:
                factor[self.rank[stage] == ends.pop()] *= fault.factor
        transfer = job.transfer_ms * _MS * factor * self._noise(start.shape, 0.05)
        self.now[stage] = np.maximum(start + 2e3, sent + transfer + self._tail(start.shape))
        number = self._number("receive", before, stage)
        self._row(
            stage, start, "receive", name="irecv", peer=self.rank[before], sequence=number, bytes=1 << 20
        )

    def _collective(self, at: Any, name: str, size: float) -> None:
        job = self.job
        start = self.now[at].copy()
        members = self.rank[at].ravel()
        factor = 1.0
        for fault in self._now("link"):
            if len(members) > 1 and {*fault.ranks} <= {*members.tolist()} and len(members) < job.ranks:
                factor *= fault.factor
        transfer = job.transfer_ms * _MS * size * factor * float(self._noise((), 0.05))
        self.now[at] = start.max() + transfer + self._tail(start.shape)
        group = _group(members)
        self._row(
            at,
            start,
            "collective",
            name=name,
            group=group,
            sequence=self._number(name, group),
            bytes=int(size * (1 << 20)),
        )

    def _buckets(self, stage: int, start: Times, ready: list[Times]) -> None:
        """Reduce each layer's gradients once all replicas have them, one layer after the other.

        Each is a bucket of 25 MiB; of the first one, 1 MiB goes ahead.
        """
        done = np.zeros(self.now[stage].shape[1])
        first = start + (ready[0] - start) / 25
        for own, share in ((first, 0.04), (ready[0], 0.96), *((each, 1.0) for each in ready[1:])):
            done = np.maximum(done, own.max(axis=0)) + self._transfer(stage, 4.0 * share / len(ready))
        wait = self.now[stage].copy()
        self.now[stage] = np.maximum(wait, done) + self._tail(wait.shape)
        self._asynchronous(stage, start, wait, self.now[stage], "reduce_gradients", 25 * len(ready))

    def _transfer(self, stage: int, size: float) -> Times:
        """Return what a transfer of each data-parallel group of a stage takes ``[tensor]``."""
        factor = np.ones(self.job.tensor)
        for fault in self._now("link"):
            for t in range(self.job.tensor):
                factor[t] *= fault.factor if {*fault.ranks} <= {*self.rank[stage, :, t].tolist()} else 1
        return self.job.transfer_ms * _MS * size * factor * self._noise(factor.shape, 0.05)

    def _asynchronous(
        self, stage: int, start: Times, wait: Times, end: Times, name: str, size: int = 4
    ) -> None:
        groups = [_group(self.rank[stage, :, t]) for t in range(self.job.tensor)] * self.job.data
        number = self._number(name, stage)
        values = {**_DEFAULTS, "name": name, "group": groups, "sequence": number, "bytes": size << 20}
        self.rows.add(
            self.rank[stage], start, end, wait=wait.ravel(), kind="collective", step=self.step, **values
        )

    # What happens by chance.

    def _noise(self, shape: Any, width: float | None = None) -> Times:
        noise: Times = np.exp(self.random.normal(0, self.job.noise if width is None else width, shape))
        return noise

    def _tail(self, shape: Any) -> Times:
        """ns from the end of a transfer to the moment at which a rank goes on: microseconds, with a heavy tail (Pareto, α = 1.5), at most 20 ms."""
        tail: Times = np.minimum(2e3 * (1 + self.random.pareto(1.5, shape)), 20 * _MS)
        return tail

    def _gap(self) -> Times:
        return 0.05 * _MS * self._noise(self.now.shape, 0.3)

    # What is wrong.

    def _now(self, kind: str) -> Iterator[Fault]:
        return (
            each for each in self.job.faults if each.kind == kind and each.first <= self.step <= each.last
        )

    def _of_faults(self, kind: str) -> Times:
        factor = np.ones(self.now.shape)
        for fault in self._now(kind):
            factor[np.isin(self.rank, fault.ranks)] *= fault.factor
        return factor

    # Rows.

    def _row(self, at: Any, start: Times, kind: str, **others: Any) -> None:
        values = {**_DEFAULTS, **others, "wait": start.ravel()}
        self.rows.add(self.rank[at], start, self.now[at], kind=kind, step=self.step, **values)

    def _number(self, *key: Any) -> int:
        number = self.sequences.get(key, 0)
        self.sequences[key] = number + 1
        return number


class _Shards:
    """The collectives of a pass whose weights are in shards: on one stream, one after the other."""

    def __init__(self, player: _Player, stage: int) -> None:
        self._player, self._stage = player, stage
        self._free = np.zeros(player.now[stage].shape[1])
        self._ahead = self._issue()
        self._reducing: list[tuple[Times, Times]] = []

    def _issue(self) -> tuple[Times, Times]:
        issued = self._player.now[self._stage].copy()
        self._free = np.maximum(self._free, issued.max(axis=0)) + self._player._transfer(self._stage, 1.0)
        return issued, self._free

    def gather(self, layer: int) -> None:
        """Wait for a layer's weights once the next one's are asked for."""
        issued, done = self._ahead
        if layer + 1 < self._player.job.layers:
            self._ahead = self._issue()
        self._wait(issued, done, "all_gather_into_tensor")

    def reduce(self) -> None:
        """Begin to reduce a layer's gradients."""
        self._reducing.append(self._issue())

    def finish(self) -> None:
        """Wait for the gradients of all layers."""
        for issued, done in self._reducing:
            self._wait(issued, done, "reduce_scatter_tensor")

    def _wait(self, issued: Times, done: Times, name: str) -> None:
        player, stage = self._player, self._stage
        wait = player.now[stage].copy()
        player.now[stage] = np.maximum(wait, done) + player._tail(wait.shape)
        player._asynchronous(stage, issued, wait, player.now[stage], name)


def _one_forward_one_backward(stage: int, stages: int, count: int) -> Iterator[tuple[str, int]]:
    warm = min(stages - stage - 1, count)
    for number in range(warm):
        yield "forward", number
    for number in range(count - warm):
        yield "forward", warm + number
        yield "backward", number
    for number in range(count - warm, count):
        yield "backward", number


def _group(members: NDArray[np.int64]) -> str:
    ranks = members.tolist()
    if len(ranks) > 1 and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}-{ranks[-1]}"
    return ",".join(map(str, ranks))
