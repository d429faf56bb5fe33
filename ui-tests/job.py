"""A job of eight processes for the browser tests, as the wire sees it: a real hub, and a leader that answers as a tracer does.

Lines on standard input steer it: ``silence 3`` lets nothing more be heard of a rank, ``speak 3`` ends that, ``cost 0.8`` says what tracing costs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from megalens.hub.discovery import find_hub
from megalens.protocol import compressor_infos, decode_message, encode_message, perturbation_infos

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "kit"))
from live_run import scalars_frame, tensors_frame

RANKS = 8
LAYERS = [0, 1, 2, 3]


class Job:
    """What the eight processes are doing."""

    def __init__(self, name: str, rate: float) -> None:
        self.name = name
        self.rate = rate
        self.step = 0
        self.touched = 0
        self.last_step: int | None = None
        self.silent: dict[int, float] = {}
        self.cost: float | None = None
        self.config: dict[str, Any] = {
            "flags": {"HiddenStates": {"compressor": {"name": "Tile", "params": {"tiles": 8}}}}
        }
        self.asked: list[dict[str, Any]] = []
        self.wake = asyncio.Event()

    @property
    def waits(self) -> bool:
        paused = self.config.get("mode", {}).get("paused", False)
        return paused and not (self.last_step is not None and self.step < self.last_step)

    def announce(self) -> dict[str, Any]:
        places = [
            {
                "rank": rank,
                "tp": rank % 2,
                "dp": rank // 2 % 2,
                "pp": rank // 4,
                "host": f"node-{1 + rank // 4}",
            }
            for rank in range(RANKS)
        ]
        flag = {"parts": [""], "axes": ["position", "feature"], "bytes_per_layer": 4096.0, "features": 32}
        return {
            "type": "announce",
            "rank": 0,
            "run_name": self.name,
            "model": {"name": "GPT", "layers": 4, "hidden": 32},
            "layout": {"world_size": RANKS, "tp": 2, "pp": 2, "dp": 2, "ranks": places},
            "flags": [
                {"name": "HiddenStates", "title": "Hidden states", "layers": LAYERS, **flag},
                {"name": "MLP1_mat_mul", "title": "MLP1 output", "layers": [1, 3], **flag},
                {
                    "name": "RawAttentionScore_mat_mul",
                    "title": "Attention probabilities",
                    "layers": [],
                    **flag,
                },
            ],
            "compressors": compressor_infos(),
            "config": self.config,
            "versions": {"torch": "2.9"},
            "controls": ["pause", "watched", "perturb"],
            "sites": [
                {
                    "name": "calculation",
                    "title": "MLP output",
                    "layers": LAYERS,
                    "kinds": perturbation_infos(),
                },
                {
                    "name": "system",
                    "title": "Between layers",
                    "layers": LAYERS,
                    "kinds": perturbation_infos(),
                },
                {
                    "name": "weight",
                    "title": "Weights",
                    "layers": [],
                    "kinds": [],
                    "reason": "These weights are sharded.",
                },
            ],
        }

    def status(self) -> dict[str, Any]:
        state = "paused" if self.waits else "training"
        now = asyncio.get_running_loop().time()
        ranks = [
            {
                "rank": rank,
                "state": state,
                "step": self.step,
                "seconds": now - self.silent.get(rank, now),
            }
            for rank in range(RANKS)
        ]
        status = {
            "type": "status",
            "state": state,
            "step": self.step,
            "ranks": ranks,
            "perturbed_steps": self.touched,
        }
        limit = self.config.get("budget")
        if self.cost is not None and limit is not None:
            over = self.cost > limit
            status["budget"] = {
                "limit": limit,
                "state": "over" if over else "inside",
                "percent": self.cost,
                "low": self.cost - 0.1,
                "high": self.cost + 0.1,
                "steps": 400,
                "gave_up": ["Every second step is traced instead of every step."] if over else [],
            }
        return status

    def apply(self, patch: dict[str, Any]) -> None:
        """Put a patch in force before the next step."""
        for flag, setting in patch["flags"].items():
            if setting is None:
                self.config["flags"].pop(flag, None)
            else:
                self.config["flags"][flag] = setting
        if "perturb" in patch:
            self.config.pop("perturb", None)
            if patch["perturb"] is not None:
                until = self.step + patch["perturb"].get("steps", 100)
                self.config["perturb"] = {**patch["perturb"], "until": until}
        if "mode" in patch:
            wish = patch["mode"]
            mode = {**self.config.pop("mode", {}), **{name: wish[name] for name in wish if name != "steps"}}
            self.last_step = self.step + wish["steps"] if "steps" in wish else None
            mode["paused"] = mode.get("paused", False) or "steps" in wish
            self.config["mode"] = {name: True for name, on in mode.items() if on}
        if "budget" in patch:
            self.config["budget"] = patch["budget"]


async def train(job: Job, hub: ClientConnection) -> None:
    """Take steps, wait where somebody asked for it, and say how every process is."""
    while True:
        for message in job.asked:
            job.apply(message["patch"])
            answer = {"type": "configured", "id": message["id"], "step": job.step + 1, "config": job.config}
            await hub.send(encode_message({**answer, "applied": True}))
        job.asked.clear()
        if not job.waits:
            if job.step == 0:
                print("first step taken", flush=True)
            job.step += 1
            until = job.config.get("perturb", {}).get("until")
            if until is not None:
                job.touched += job.step <= until
            await hub.send(scalars_frame(job.step))
            await hub.send(tensors_frame(job.step, layers=LAYERS))
        await hub.send(encode_message(job.status()))
        try:
            await asyncio.wait_for(job.wake.wait(), 1 / job.rate)
        except TimeoutError:
            continue
        job.wake.clear()


async def answer(job: Job, hub: ClientConnection) -> None:
    """Accept what viewers ask for; it is applied before the next step."""
    async for data in hub:
        message = decode_message(data)
        if message["type"] == "configure":
            accepted = {"type": "configured", "id": message["id"], "step": job.step + 1, "config": job.config}
            await hub.send(encode_message({**accepted, "applied": False}))
            job.asked.append(message)
            job.wake.set()


async def steer(job: Job) -> None:
    """Follow standard input, which closes with the test's process, and with it this job ends."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        word, value = line.split()
        if word == "silence":
            job.silent[int(value)] = loop.time()
        elif word == "speak":
            job.silent.pop(int(value), None)
        else:
            job.cost = float(value)
    os._exit(0)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--record", required=True)
    parser.add_argument("--rate", type=float, default=5.0, help="steps per second")
    options = parser.parse_args()
    command = [sys.executable, "-m", "megalens", "hub", "--name", options.name, "--linger", "2"]
    started = subprocess.Popen([*command, "--record", options.record], stdout=subprocess.PIPE, text=True)
    ready = json.loads(started.stdout.readline())
    entry = find_hub(ready["id"])
    job = Job(options.name, options.rate)
    login = {"Authorization": f"Bearer {entry.token}"}
    async with connect(
        entry.address, subprotocols=["megalens.v2"], additional_headers=login, compression=None
    ) as hub:
        peer = {"name": "tracer", "version": "0"}
        await hub.send(
            encode_message({"type": "join", "protocol": "megalens.v2", "role": "producer", "peer": peer})
        )
        await hub.recv()
        await hub.send(encode_message(job.announce()))
        print(ready["id"], flush=True)
        await asyncio.gather(train(job, hub), answer(job, hub), steer(job))


if __name__ == "__main__":
    asyncio.run(main())
