"""A live run for tests: a real hub process and a producer thread that speaks for a training process."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
from recorded_run import tensor_row
from waiting import until as eventually  # noqa: F401
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from megalens.hub.discovery import find_hub
from megalens.protocol import (
    ProtocolError,
    compressor_infos,
    decode_message,
    encode_frame,
    encode_message,
    perturbation_infos,
    stream_schema,
)

ROOT = Path(__file__).parents[2]
WAIT = 60
NO_OP = {"compressor": {"name": "NoOp"}}
# The library logs headers, and the tests that look for the token in logs mean the product's.
QUIET = logging.Logger("quiet", logging.CRITICAL)


def started_hub(runtime, *options, **settings):
    """Return the process of a hub, of which nothing is read yet."""
    return subprocess.Popen(
        [sys.executable, "-m", "megalens", "hub", *map(str, options)],
        cwd=ROOT,
        env={**os.environ, "MEGALENS_RUNTIME_DIR": str(runtime)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


class LiveRun:
    """One hub with one producer. ``step()`` makes a step; ``configure`` is answered as a tracer does."""

    def __init__(self, runtime, *options, name="gpt-test", controls=()):
        self.name = name
        self.controls = controls
        self.process = started_hub(runtime, "--name", name, *options)
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        self.id = json.loads(line)["id"]
        self.entry = find_hub(self.id, Path(runtime))
        self.address = self.entry.address
        self.token = self.entry.token
        self.current = 0
        self.config = {"flags": {"HiddenStates": dict(NO_OP)}}
        self._socket = None
        self._thread = None

    def announce(self):
        """Attach the producer and say what can be traced, and done."""
        opening = connect(
            self.address,
            subprotocols=["megalens.v2"],
            additional_headers={"Authorization": f"Bearer {self.token}"},
            compression=None,
            logger=QUIET,
        )
        self._socket = opening.__enter__()
        self.send(
            {
                "type": "join",
                "protocol": "megalens.v2",
                "role": "producer",
                "peer": {"name": "tracer", "version": "0"},
            }
        )
        assert decode_message(self._socket.recv(WAIT))["type"] == "hello"
        flag = {"axes": ["position", "feature"], "bytes_per_layer": 4096.0, "features": 32}
        self.send(
            {
                "type": "announce",
                "rank": 0,
                "run_name": self.name,
                "model": {"name": "GPT", "layers": 4, "hidden": 32},
                "layout": {"world_size": 1, "tp": 1, "pp": 1, "dp": 1},
                "flags": [
                    {
                        "name": "HiddenStates",
                        "title": "Block output",
                        "layers": [0, 1, 2, 3],
                        "parts": [""],
                        **flag,
                    },
                    {
                        "name": "QKV_mat_mul",
                        "title": "Q, K, V",
                        "layers": [0, 1],
                        "parts": ["q", "k", "v"],
                        **flag,
                    },
                ],
                "compressors": compressor_infos(),
                "config": self.config,
                "versions": {"torch": "2.9"},
                "controls": list(self.controls),
                "sites": [
                    {
                        "name": "system",
                        "title": "Between layers",
                        "layers": [0, 1, 2, 3],
                        "kinds": perturbation_infos(),
                    },
                    {
                        "name": "weight",
                        "title": "Weights",
                        "layers": [],
                        "kinds": perturbation_infos(),
                        "reason": "They are sharded.",
                    },
                ],
            }
        )
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()
        return self

    def send(self, message):
        self._socket.send(message if isinstance(message, bytes) else encode_message(message))

    def step(self, count=1, size=8, layers=(0, 1, 2, 3)):
        """Make steps: one scalars frame and one tensors frame each."""
        for _ in range(count):
            self.current += 1
            self.send(scalars_frame(self.current))
            self.send(tensors_frame(self.current, layers=layers, size=size))
            self.send({"type": "status", "state": "training", "step": self.current})
        return self.current

    def finish(self):
        """End training on purpose."""
        self.send({"type": "goodbye", "reason": "finished"})
        self._socket.close()

    def kill_hub(self):
        """End the hub as a crash does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(WAIT)

    def close(self):
        """End everything that is left."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                # Viewers that do not answer its goodbye would hold it up; the runs of a test need no orderly end.
                self.process.wait(1)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self._socket is not None:
            self._socket.close()
        self.process.stdout.close()
        self.process.stderr.close()

    def _answer(self):
        try:
            for data in self._socket:
                message = decode_message(data)
                if message["type"] == "configure":
                    self._configure(message)
        except ConnectionClosed:
            return

    def _configure(self, message):
        for flag, setting in message["patch"]["flags"].items():
            reduction = ((setting or {}).get("compressor") or {}).get("params", {}).get("reduction", "mean")
            if reduction == "meen":
                error = ProtocolError(
                    "bad-reduction",
                    "The reduction 'meen' is not known.",
                    field=f"flags.{flag}.compressor.params.reduction",
                    column=1,
                )
                self.send(error.to_message(message["id"]))
                return
        for flag, setting in message["patch"]["flags"].items():
            if setting is None:
                self.config["flags"].pop(flag, None)
            else:
                self.config["flags"][flag] = setting
        self._control(message["patch"])
        answer = {"type": "configured", "id": message["id"], "step": self.current + 1, "config": self.config}
        self.send({**answer, "applied": False})
        self.send({**answer, "applied": True})

    def _control(self, patch):
        perturb, mode = patch.get("perturb"), patch.get("mode", {})
        if "perturb" in patch:
            self.config.pop("perturb", None)
        if perturb:
            until = self.current + perturb.setdefault("steps", 100)
            self.config["perturb"] = {**perturb, "until": until}
        on = {**self.config.pop("mode", {}), **{name: mode[name] for name in mode if name != "steps"}}
        if any(on.values()):
            self.config["mode"] = {name: True for name, value in on.items() if value}
        if "budget" in patch:
            self.config["budget"] = patch["budget"]


@contextmanager
def live_runs(runtime):
    """Give what starts runs whose producer has said what can be traced; all are closed at the end."""
    with ExitStack() as stack:

        def start(*options, **named):
            run = LiveRun(runtime, *options, **named)
            stack.callback(run.close)
            return run.announce()

        yield start


def tensors_frame(
    step,
    layers=(0, 1),
    size=8,
    flag="HiddenStates",
    part="",
    value=None,
    side="forward",
    rank=0,
    nan=0,
    inf=0,
):
    """Return one frame with a row a layer."""
    common = {
        **{"step": step, "pass": side, "rank": rank, "flag": flag, "part": part},
        **{"source_shape": [1, 1, size], "shape": [1, 1, size]},
        "values": [float(step if value is None else value)] * size,
        **{"nan_count": nan, "inf_count": inf},
    }
    rows = [tensor_row(**common, layer=layer) for layer in layers]
    return encode_frame("tensors", pa.Table.from_pylist(rows, stream_schema("tensors")), step=step)


def scalars_frame(step, names=("loss",), value=None):
    """Return one frame with a row a name."""
    value = 4 / step if value is None else value
    rows = [
        {"step": step, "time": time.time(), "rank": 0, "name": name, "value": value, "unit": "nats"}
        for name in names
    ]
    return encode_frame("scalars", pa.Table.from_pylist(rows, stream_schema("scalars")), step=step)
