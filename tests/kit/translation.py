"""Runs a translation to its end and opens what it recorded."""

import asyncio
import json
from dataclasses import replace

from peers import Peer, say

from megalens.hub.dialects.dialect import DIALECTS, Translation
from megalens.hub.dialects.hosted_run import HostedRun
from megalens.hub.dialects.translator import Translator
from megalens.hub.options import HubOptions
from megalens.runs import RunFolder

WAIT = 60
SMALL = {
    "flags": {
        "QKV_mat_mul": {"samples": None, "compressor": {"name": "Tile", "params": {"tiles": 6}}},
        "MLP1_mat_mul": {"samples": None, "compressor": {"name": "Tile", "params": {"tiles": 4}}},
        "MLP2_mat_mul": {"samples": None, "compressor": {"name": "Tile", "params": {"tiles": 4}}},
    }
}


def small(dialect, *others):
    """A configuration with few tiles; a dialect that shares them has them alike."""
    config = {"flags": dict(SMALL["flags"])}
    if dialect == "3606":
        config["flags"] = {
            name: {**setting, "compressor": {"name": "Tile", "params": {"tiles": 6}}}
            for name, setting in config["flags"].items()
        }
    for other in others:
        config["flags"][other] = {"samples": None, "compressor": {"name": "NoOp"}}
    return config


def plan(peer, dialect, **changes):
    base = Translation(
        address=peer if isinstance(peer, str) else peer.address,
        dialect=DIALECTS[dialect] if dialect else None,
        config=small(dialect) if dialect else None,
        wait_seconds=0.2,
    )
    return replace(base, **changes)


class Outcome:
    """A finished translation: its recording, what it said, and the error that ended it."""

    def __init__(self, folder, translator, error):
        self.run, self.translator, self.error = folder, translator, error
        self.said = translator.sentences()

    def rows(self, flag=None):
        rows = self.run.read("tensors").to_pylist()
        return [row for row in rows if flag is None or row["flag"] == flag]

    def audit(self, action):
        """The details of the rows of ``audit`` of an action."""
        rows = self.run.read("audit").to_pylist()
        return [json.loads(row["detail"]) for row in rows if row["action"] == action]

    def steps(self, flag, layer):
        return [(row["step"], row["micro_batch"]) for row in self.rows(flag) if row["layer"] == layer]


async def translate(tmp_path, asked, during=None):
    """Translate to the end; ``during(host, translator)`` runs beside it."""
    translator = Translator(asked)
    error = None
    options = HubOptions(name=asked.name, record=tmp_path / "runs", linger=0)
    async with HostedRun(options, "translation", translator.configure) as host:
        beside = asyncio.create_task(during(host, translator)) if during else None
        try:
            await asyncio.wait_for(translator.run(host), WAIT)
        except Exception as caught:
            error = caught
        if beside:
            await asyncio.wait_for(beside, WAIT)
        await host.finish()
        folder = host.entry.record
    if isinstance(error, asyncio.TimeoutError):
        raise error
    return Outcome(RunFolder(folder), translator, error)


def sends(messages, then=None, pong=False):
    """A script that answers run_training_step with ``start`` and ``messages``, and then closes for good."""

    async def script(peer, socket, message):
        if message["type"] == "ping" and pong:
            await say(socket, {"type": "pong"})
        if message["type"] != "run_training_step":
            return
        for each in messages:
            await say(socket, each)
        if then:
            await then(peer, socket)
        else:
            peer.server.close(close_connections=False)
            await socket.close()

    return script


def record(tmp_path, dialect, messages, then=None, during=None, **changes):
    """Translate what a peer sends into a run below a folder, until the peer closes."""

    async def run():
        async with Peer(sends(messages, then, pong=dialect in ("T1", None))) as peer:
            outcome = await translate(tmp_path, plan(peer, dialect, **changes), during)
            outcome.peer = peer
            return outcome

    return asyncio.run(run())
