"""Helpers of the hub's tests: a hub as a child process, producers and viewers as plain websockets clients."""

import json
import signal
import socket
import subprocess
import time
from pathlib import Path

from live_run import ROOT as ROOT
from live_run import WAIT, scalars_frame, started_hub, tensors_frame
from recorded_moments import moment_table
from waiting import until as until
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from megalens.hub.discovery import find_hub
from megalens.protocol import (
    FrameChecker,
    compressor_infos,
    decode_frame,
    decode_message,
    encode_frame,
)


class HubProcess:
    def __init__(self, runtime, *options, preexec=None):
        self.runtime = runtime
        self.process = started_hub(runtime, *options, preexec_fn=preexec)
        self.ready = None
        self.clients = []

    def wait_ready(self):
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        self.ready = json.loads(line)
        self.entry = find_hub(self.ready["id"], self.runtime)
        return self

    @property
    def url(self):
        return f"ws://{self.ready['host']}:{self.ready['port']}/"

    @property
    def record(self):
        return Path(self.entry.record)

    def small_socket(self):
        """Return a connected socket that takes little: what is not read stays with the hub."""
        small = socket.socket()
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 200_000)
        small.connect((self.ready["host"], self.ready["port"]))
        return small

    def connect(self, token=True, subprotocols=("megalens.v2",), headers=None, path="", **options):
        headers = dict(headers or {})
        if token:
            headers["Authorization"] = f"Bearer {self.entry.token if token is True else token}"
        options = {
            "compression": None,
            "max_size": None,
            "ping_interval": None,
            "close_timeout": 0.5,
            **options,
        }
        opening = connect(
            self.url + path, subprotocols=subprotocols or None, additional_headers=headers, **options
        )
        client = Client(opening.__enter__())
        self.clients.append(client)
        return client

    def viewer(self, since=None, run=None, backlog=None, name="panel", **options):
        client = self.connect(**options)
        message = {"type": "join", "protocol": "megalens.v2", "role": "viewer", "peer": peer(name)}
        for key, value in (("since", since), ("run", run), ("backlog", backlog)):
            if value is not None:
                message[key] = value
        client.send(message)
        client.hello = client.wait("hello")
        return client

    def producer(self, announce_as=0, **changes):
        client = self.connect()
        client.send(
            {
                "type": "join",
                "protocol": "megalens.v2",
                "role": "producer",
                "peer": peer(f"tracer-{announce_as}"),
            }
        )
        client.hello = client.wait("hello")
        if announce_as is not None:
            client.send(announce(announce_as, **changes))
        return client

    def terminate(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(WAIT)

    def close(self):
        for client in self.clients:
            client.socket.close_socket() if hasattr(client.socket, "close_socket") else client.close()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(WAIT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


class Client:
    def __init__(self, socket):
        self.socket = socket
        self.frames = []
        self.messages = []

    def send(self, message):
        self.socket.send(message if isinstance(message, (str, bytes)) else json.dumps(message))

    def read(self, timeout=WAIT):
        """Return the next decoded message or frame, and keep it."""
        data = self.socket.recv(timeout)
        if isinstance(data, bytes):
            frame = decode_frame(data)
            frame.table()
            self.frames.append(frame)
            return frame
        message = decode_message(data)
        self.messages.append(message)
        return message

    def wait(self, kind, test=lambda message: True):
        """Return the next message of a type that passes a test."""
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            got = self.read(end - time.monotonic())
            if isinstance(got, dict) and got["type"] == kind and test(got):
                return got
        raise AssertionError(f"no {kind} came")

    def wait_frames(self, count, stream="tensors"):
        """Return the frames of a stream so far once there are ``count``."""
        end = time.monotonic() + WAIT
        while len(self.of(stream)) < count:
            assert time.monotonic() < end, f"{len(self.of(stream))} of {count} frames came"
            self.read(end - time.monotonic())
        return self.of(stream)

    def of(self, stream):
        return [frame for frame in self.frames if frame.stream == stream]

    def closed(self):
        """Read up to the end and return the close code."""
        try:
            while True:
                self.read()
        except ConnectionClosed as end:
            return end.rcvd.code if end.rcvd else 1006

    def close(self):
        self.socket.close()


def put(recorder, *frames):
    """Hand frames over to a recorder as the hub does."""
    for data in frames:
        frame = decode_frame(data)
        recorder.put(FrameChecker().check(frame, data), frame.step, len(data))


def peer(name):
    return {"name": name, "version": "0"}


def announce(rank=0, layers=(1, 2, 3, 4), **changes):
    def flag(name, layers, **more):
        return {
            "name": name,
            "title": name,
            "layers": list(layers),
            "parts": [],
            "axes": ["position", "feature"],
            "bytes_per_layer": None,
            **more,
        }

    return {
        "type": "announce",
        "rank": rank,
        "run_name": "gpt-demo",
        "model": {"name": "gpt", "layers": 4},
        "layout": {"world_size": 1, "tp": 1, "pp": 1, "dp": 1},
        "flags": [
            flag("HiddenStates", layers),
            flag("MLP1_mat_mul", layers),
            flag("RawAttentionScore_mat_mul", (), reason="The attention kernel is fused."),
        ],
        "compressors": compressor_infos(),
        "config": {"flags": {}},
        "versions": {"torch": "2.9"},
        **changes,
    }


def tensors(step, layers=(1, 2), **more):
    return tensors_frame(step, layers, **more)


def scalars(step, names=("loss",), value=1.5):
    return scalars_frame(step, names, value)


def moments(step, names=("decoder.layers.0.mlp.linear_fc1.weight",), stats=("param",), nan=0, inf=0):
    table = moment_table([step], stats, names, nan_count=float(nan), inf_count=float(inf))
    return encode_frame("moments", table, step=step)
