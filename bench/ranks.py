"""One process of a job that is measured: of pipelines and split trainings, of which the first one writes what came of them, and of the data-parallel training that ``bench.soak`` disturbs."""

from __future__ import annotations

import json
import os
import random
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import megalens
from megalens import Tile
from megalens.demo import GPT
from megalens.demo.model import Block, GPTConfig
from megalens.instruments.pipeline import DynamicSchedule
from megalens.instruments.pipeline.plan_type import Placement
from megalens.instruments.pipeline.split import SplitLayout, SplitTraining
from megalens.instruments.pipeline.stages.link import Link
from megalens.tracer import Place

from .live import joined, traced
from .recordings import FLAGS

__all__ = ["measured", "soak"]

WIDTH = 8
_SIZES = GPTConfig(hidden=256, sequence=128)


class _Held:
    """A tensor that autograd keeps, counted for as long as it does."""

    def __init__(self, tensor: Tensor, kept: KeptBytes) -> None:
        self.tensor, self._kept = tensor, kept
        self._bytes = tensor.numel() * tensor.element_size()
        kept.add(self._bytes)

    def __del__(self) -> None:
        self._kept.add(-self._bytes)


class KeptBytes(torch.autograd.graph.saved_tensors_hooks):
    """Counts the bytes that autograd keeps for backward passes, of tensors that are no parameters; ``peak`` is the most since it was set to 0."""

    def __init__(self) -> None:
        self.now = self.peak = 0
        super().__init__(self._pack, self._unpack)

    def add(self, nbytes: int) -> None:
        self.now += nbytes
        self.peak = max(self.peak, self.now)

    def _pack(self, tensor: Tensor) -> Any:
        return tensor if isinstance(tensor, nn.Parameter) else _Held(tensor, self)

    @staticmethod
    def _unpack(held: Any) -> Tensor:
        return held.tensor if isinstance(held, _Held) else held


class _Work(torch.autograd.Function):
    """Sleeps in both passes: a device that computes leaves the processor alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward_ms: float, backward_ms: float, kept: int) -> Tensor:
        time.sleep(forward_ms / 1e3)
        ctx.backward_ms = backward_ms
        if kept:
            ctx.save_for_backward(torch.empty(kept, dtype=torch.uint8))
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        time.sleep(ctx.backward_ms / 1e3)
        return gradient, None, None, None


class TimedStage(nn.Module):
    """A part of a model whose forward pass, input gradient and weight gradients take given times, in ms, and which keeps given bytes between them."""

    def __init__(self, forward_ms: float, input_ms: float, weight_ms: float, kept: int) -> None:
        super().__init__()
        self.times = forward_ms, input_ms, weight_ms
        self.kept = kept
        self.scale = nn.Parameter(torch.ones(1))
        # As an embedding does on the first stage: what comes out of it has a gradient.
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        forward_ms, input_ms, weight_ms = self.times
        # The weights' gradients hang on a path of their own, as they do in a layer.
        scale = _Work.apply(self.scale, 0.0, weight_ms, 0)
        return _Work.apply(x + self.shift, forward_ms, input_ms, self.kept) * scale


def _traced(case: dict[str, Any], modules: list[nn.Module], place: Place) -> Any:
    """Return a tracer that records where the case says so."""
    if not case.get("record"):
        return None
    return megalens.trace(
        nn.ModuleList(modules),
        timeline="phases",
        record=case["record"],
        adapter=megalens.adapters.Adapter(layer="{i}"),
        place=place,
    )


def _together(step: Callable[[], None], tracer: Any) -> float:
    """Take a step; return the seconds from its beginning on the first process to its end on the last one."""
    distributed.barrier()
    began = time.perf_counter()
    with tracer.step() if tracer is not None else nullcontext():
        step()
    # All processes are on one machine and read one clock.
    both: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(both, (began, time.perf_counter()))
    return max(each[1] for each in both) - min(each[0] for each in both)


def _layers(count: int) -> nn.Module:
    return nn.Sequential(*(Block(_SIZES) for _ in range(count)))


def _batch(rows: int, message: int | None) -> tuple[Tensor, Tensor]:
    """Return inputs, for layers of a GPT or of so many bytes, and targets."""
    shape = (_SIZES.sequence, _SIZES.hidden) if message is None else (max(1, message // (4 * WIDTH)), WIDTH)
    return torch.randn(rows, *shape), torch.randn(rows, 1, 1)


def _loss(output: Tensor, target: Tensor) -> Tensor:
    return (output * target).mean()


def measured(job: dict[str, Any], out: str) -> None:
    """Run the pipelines and split trainings of a job's blocks; rank 0 writes what came of each, and where it was recorded."""
    if job.get("cpus"):
        os.sched_setaffinity(0, job["cpus"][int(os.environ["RANK"])])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    found = []
    for block in job["blocks"]:
        # All ways of a block are ready before the first is measured, and take turns.
        delay = _delays(block.get("delay"), rank)
        ways = [_Way(each, rank, delay) for each in block["cases"]]
        rng = random.Random(7)
        for _ in range(block.get("rounds", 1)):
            for way in rng.sample(ways, len(ways)):
                way.run(block["steps"])
        found += [way.close() for way in ways]
    if rank == 0:
        Path(out).write_text(json.dumps(found))
    distributed.barrier()
    distributed.destroy_process_group()


class _Way:
    """A training of a case: a split one, or a pipeline."""

    def __init__(self, case: dict[str, Any], rank: int, delay: Any) -> None:
        self.case, self.rank, self.world = case, rank, distributed.get_world_size()
        self.kept = KeptBytes()
        self.steps: list[float] = []
        self.peak = 0
        # Layers of a GPT take what layers do.
        computes = "layers" in case or "layers" in case.get("stages", [{}])[0]
        self.x, self.target = _batch(case["micro_batches"], None if computes else case["message"])
        self.tracer, self._step, self._close = self._split() if case.get("split") else self._pipeline(delay)

    def run(self, steps: int) -> None:
        for at in range(steps + 1):
            self.kept.peak = self.kept.now
            with self.kept:
                took = _together(self._step, self.tracer)
            if at > 0:
                self.steps.append(took)
                self.peak = max(self.peak, self.kept.peak)

    def close(self) -> dict[str, Any]:
        peaks: list[Any] = [None] * self.world
        distributed.all_gather_object(peaks, self.peak)
        distributed.barrier()
        folder = None if self.tracer is None else str(self.tracer.folder)
        if self.tracer is not None:
            self.tracer.close()
        self._close()
        return {
            "name": self.case.get("name"),
            "steps_ms": [1e3 * each for each in self.steps],
            "step_ms": 1e3 * statistics.median(self.steps),
            "peaks": peaks,
            "folder": folder,
        }

    def _given(self, first: bool, last: bool) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """Return what a step is given, which has the first stage or the last one."""
        return (self.x,) if first else (), self.target if last else None

    def _split(self) -> Any:
        case, stages = self.case, len(self.case["stages"])
        layout = SplitLayout.of(pipeline=stages, last_forward=case["last_forward"], world=self.world)
        place = layout.place(self.rank)
        module = _stage(case, place.stage, place.role)
        tracer = _traced(case, [module], layout.tracer_place(self.rank))
        training = SplitTraining(
            module,
            layout=layout,
            loss_fn=_loss,
            optimizer=_sgd,
            micro_batches=case["micro_batches"],
            ahead=case["ahead"],
            timeout=60,
            tracer=tracer,
        )
        inputs, target = self._given(place.stage == 0, place.stage == stages - 1)
        return tracer, lambda: training.step(*inputs, target=target), training.close

    def _pipeline(self, delay: Any) -> Any:
        case, rank, world = self.case, self.rank, self.world
        layout = Placement(case.get("placement", "loop"), world, case.get("chunks", 1), case["micro_batches"])
        held = layout.held_by(rank)
        modules = [_part(case, v, layout.virtual_stages) for v in held]
        place = Place(rank, pp=rank, tp_ranks=(rank,), world_size=world, pp_size=world)
        tracer = _traced(case, modules, place)
        schedule = DynamicSchedule(
            modules,
            case["micro_batches"],
            case.get("order", "1f1b"),
            _loss,
            placement=layout.kind,
            tracer=tracer,
            timeout=60,
        )
        for link in () if delay is None else schedule._links.values():
            _late(link, delay)
        inputs, target = self._given(
            any(layout.is_first(v) for v in held), any(layout.is_last(v) for v in held)
        )
        optimizer = _sgd(modules[0].parameters()) if "stages" in case else None

        def step() -> None:
            schedule.step(*inputs, target=target, return_outputs=False)
            if optimizer is not None:
                optimizer.step()
                optimizer.zero_grad()

        return tracer, step, schedule.close


def _part(case: dict[str, Any], at: int, parts: int) -> nn.Module:
    """Return a virtual stage of a pipeline, by the times of stages or of parts of the model's depth."""
    if "stages" in case:
        stage = _stage(case, at, "backward")
        return _Recomputed(stage) if case["recompute"] else stage
    if "layers" in case:
        return _layers(case["layers"] // parts)
    each = len(case["forward"]) // parts
    times = (sum(case[what][at * each : (at + 1) * each]) for what in ("forward", "input", "weight"))
    return TimedStage(*times, case["kept"] // parts)


def _stage(case: dict[str, Any], stage: int, role: str) -> nn.Module:
    facts = case["stages"][stage]
    if "layers" in facts:
        return _layers(facts["layers"])
    if role == "forward":
        return TimedStage(facts["forward"], 0.0, 0.0, 0)
    return TimedStage(facts["recompute"], facts["backward"], 0.0, 0)


def _sgd(weights: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(weights, lr=1e-6)


def _delays(pattern: dict[str, Any] | None, rank: int) -> Any:
    """Return what says how late the next message to a rank is, in s; None where none is."""
    if pattern is None:
        return None
    rng = random.Random(100 + rank)
    sent = [0]

    def late(peer: int) -> float:
        sent[0] += 1
        ms = pattern["ms"]
        if pattern["kind"] == "link":
            return ms / 1e3 if {rank, peer} == set(pattern["ranks"]) else 0.0
        if pattern["kind"] == "random":
            return rng.expovariate(1 / ms) / 1e3
        # Every fourth message is held up.
        return 4 * ms / 1e3 if sent[0] % 4 == 0 else 0.0

    return late


def _late(link: Link, late: Any) -> None:
    """Have a link send each message later, in their order, from another thread: the training thread goes on at once, as with a slow network."""
    send, flush = link.send, link.flush
    waiting: deque[tuple[float, Any]] = deque()
    change = threading.Condition()
    busy = [0]

    def delayed(key: Any, tensors: Any, headers: bool) -> None:
        with change:
            waiting.append((time.perf_counter() + late(link.peer), (key, tensors, headers)))
            busy[0] += 1
            change.notify_all()

    def flushed(seconds: float) -> None:
        with change:
            change.wait_for(lambda: busy[0] == 0, seconds)

    def work() -> None:
        while True:
            with change:
                change.wait_for(lambda: bool(waiting))
                due, given = waiting.popleft()
            time.sleep(max(0.0, due - time.perf_counter()))
            send(*given)
            flush(60.0)
            with change:
                busy[0] -= 1
                change.notify_all()

    threading.Thread(target=work, daemon=True).start()
    link.send, link.flush = delayed, flushed


class _Recomputed(nn.Module):
    """Computes its activations anew for the backward pass."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)


_SAVE_STEPS = 25
_SAMPLES = 2


def soak(rank: int, life: int, folder: str, steps: int | None) -> None:
    """Train until the folder holds a file ``stop``, or for a number of steps, untraced; write every loss, bit for bit.

    ``life`` is how often the job was started before.
    """
    home = Path(folder)
    joined(rank, 2, home / f"store-{life}")
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = _load(home, model, optimizer)
    replica = DistributedDataParallel(model)
    with ExitStack() as stack:
        tracer: Any = None
        if steps is None:
            flags = {flag: {"compressor": Tile(96).to_setting(), "replicas": "all"} for flag in FLAGS}
            options: dict[str, Any] = {"record": home / "runs", "linger": 0, "first_step": step + 1}
            # Every rank has its hub before the first step, so that no row is early.
            tracer = stack.enter_context(traced(replica, name="soak", flags=flags, **options))
            name = f"{life}-{rank}"
            threading.Thread(target=_tell, args=(tracer, home, name), daemon=True).start()
            distributed.barrier()
        losses = stack.enter_context(open(home / f"losses-{life}", "a", encoding="utf-8"))
        while not _ends(home, step, steps):
            step += 1
            with tracer.step() if tracer else nullcontext():
                loss = _train(replica, optimizer, step, rank)
            if rank == 0:
                losses.write(f"{step} {loss.hex()}\n")
                losses.flush()
                if step % _SAVE_STEPS == 0:
                    _save(home, model, optimizer, step)
    if tracer:
        _write_status(tracer, home, f"{life}-{rank}", ended=True)
    distributed.barrier()
    distributed.destroy_process_group()


def _train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int, rank: int) -> float:
    generator = torch.Generator().manual_seed(2 * step + rank)
    tokens = torch.randint(256, (_SAMPLES, 1), generator=generator) + torch.arange(65)
    ids = tokens % 256
    optimizer.zero_grad()
    scores = model(ids[:, :-1])
    loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def _ends(folder: Path, step: int, steps: int | None) -> bool:
    """Agree with the other rank on whether this was the last step."""
    over = step >= steps if steps is not None else (folder / "stop").exists()
    flag = torch.tensor([int(over)])
    distributed.all_reduce(flag, distributed.ReduceOp.MAX)
    return bool(flag)


def _save(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    partial = folder / "checkpoint.partial"
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, partial)
    os.replace(partial, folder / "checkpoint.pt")


def _load(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    path = folder / "checkpoint.pt"
    if not path.exists():
        return 0
    saved = torch.load(path, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return int(saved["step"])


def _tell(tracer: Any, folder: Path, name: str) -> None:
    """Keep on disk what the status says, for whoever looks once this process was killed."""
    while True:
        _write_status(tracer, folder, name, ended=False)
        time.sleep(0.2)


def _write_status(tracer: Any, folder: Path, name: str, *, ended: bool) -> None:
    status = {"run": tracer.run_id, "hub": tracer.hub_pid, "ended": ended, "status": tracer.status()}
    partial = folder / f"status-{name}.{ended}.partial"
    partial.write_text(json.dumps(status), encoding="utf-8")
    target = folder / f"status-{name}.json"
    if ended or not target.exists() or not json.loads(target.read_text(encoding="utf-8"))["ended"]:
        os.replace(partial, target)
