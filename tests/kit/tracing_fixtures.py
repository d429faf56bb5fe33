"""A small model, a hub of a few lines, and tracers that send to it."""

import json
import os
import queue
import signal
import threading
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import serve

import megalens
from megalens import trace
from megalens.demo.model import GPT, GPTConfig
from megalens.protocol import SUBPROTOCOL, check_message, decode_frame, decode_message

__all__ = [
    *("_one_thread", "gpt", "ids", "compiler", "own_hub", "SmallHub", "small_hub", "traced", "logged"),
    "TENSOR_KEY",
]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def gpt() -> GPT:
    torch.manual_seed(0)
    return GPT(GPTConfig(vocabulary=50, layers=2, hidden=16, heads=2, sequence=12))


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(0, 50, (3, 8), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def compiler() -> Iterator[None]:
    """Compile each test's models by themselves."""
    # What one test compiled would stand in for the next one's model.
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch.compiler.reset()


@pytest.fixture
def own_hub(tmp_path, monkeypatch):
    """A place for runtime files and recordings; hubs that are left over are ended."""
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "rt"))
    pids: set[int] = set()
    yield pids
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def hooks(model: nn.Module) -> int:
    """Return how many hooks are on a model and all its submodules."""
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


TENSOR_KEY = ("step", "micro_batch", "phase", "pass", "rank", "layer", "flag", "part", "call")
"""What tells a traced tensor from every other one of a run."""


class SmallHub:
    """The producer's side of the protocol on a real WebSocket server, keeping all that comes."""

    def __init__(self) -> None:
        self.token = "let-me-in"
        self.messages: queue.Queue[dict] = queue.Queue()
        self.rows: queue.Queue[dict] = queue.Queue()
        self.scalars: queue.Queue[dict] = queue.Queue()
        self.moments: queue.Queue[dict] = queue.Queue()
        self.headers: list = []
        self.connections: list = []
        self.seqs: list[int] = []
        self.twice: list[tuple] = []
        """Keys of tensors of which a tracer sent a second one."""
        self.reading = threading.Event()
        self.reading.set()
        self.server = serve(
            self._serve, "127.0.0.1", 0, subprotocols=[SUBPROTOCOL], compression=None, max_size=64 << 20
        )
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def address(self) -> tuple[str, str]:
        return f"ws://127.0.0.1:{self.server.socket.getsockname()[1]}", self.token

    def _serve(self, ws) -> None:
        self.headers.append(ws.request.headers)
        self.connections.append(ws)
        keys: set[tuple] = set()
        try:
            for data in ws:
                self.reading.wait(20)
                if isinstance(data, str):
                    message = decode_message(data)
                    if message["type"] == "join":
                        ws.send(json.dumps(self.hello()))
                    self.messages.put(message)
                    if message["type"] == "goodbye":
                        break
                else:
                    frame = decode_frame(data)
                    self.seqs.append(frame.seq)
                    known = {"tensors": self.rows, "moments": self.moments}
                    rows = known.get(frame.stream, self.scalars)
                    for row in frame.table().to_pylist():
                        if frame.stream == "tensors":
                            key = tuple(row[name] for name in TENSOR_KEY)
                            self.twice += [key] if key in keys else []
                            keys.add(key)
                        rows.put(row)
        except ConnectionClosed:
            pass

    def hello(self) -> dict:
        message = {
            "type": "hello",
            "protocol": SUBPROTOCOL,
            "run": {"id": "small-1", "name": "small", "started": 1.0},
            "seq": 0,
            "model": None,
            "layout": None,
            "flags": [],
            "compressors": [],
            "config": {"flags": {}},
            "limits": {"max_message_bytes": 1 << 26, "viewer_queue_bytes": 1, "backlog_bytes": 1},
            "versions": {},
        }
        check_message(message)
        return message

    def send(self, message: dict) -> None:
        check_message(message)
        self.connections[-1].send(json.dumps(message))

    def next(self, kind: str, test=lambda message: True, timeout: float = 60.0) -> dict:
        """The next message of a type that passes a test; others that come before it are left out."""
        while True:
            message = self.messages.get(timeout=timeout)
            if message["type"] == kind and test(message):
                return message

    def next_rows(self, count: int, timeout: float = 60.0) -> list[dict]:
        return [self.rows.get(timeout=timeout) for _ in range(count)]

    def next_scalars(self, count: int, timeout: float = 60.0) -> list[dict]:
        """The next numbers of the training's own."""
        found: list[dict] = []
        while len(found) < count:
            row = self.scalars.get(timeout=timeout)
            if row["name"] != "megalens_overhead":
                found.append(row)
        return found

    def close(self) -> None:
        self.reading.set()
        self.server.shutdown()
        for ws in self.connections:
            ws.close()
        self.thread.join(10)


@pytest.fixture
def small_hub() -> Iterator[SmallHub]:
    hub = SmallHub()
    yield hub
    hub.close()
    assert hub.twice == []


@pytest.fixture
def traced(small_hub: SmallHub):
    """Trace models to the small hub; whatever is open is closed at the end."""
    tracers = []

    def start(model, **options):
        options.setdefault("hub", small_hub.address)
        tracer = trace(model, **options)
        tracers.append(tracer)
        if options["hub"] == small_hub.address and tracer.points.place.rank == 0:
            assert tracer.connected(20)
        return tracer

    yield start
    for tracer in tracers:
        tracer.close()


@pytest.fixture
def logged(small_hub):
    """Begins to log to the small hub, and gives the rows by statistic, name and step once all is over."""
    loggers = []
    announced: list[dict] = []

    def begin(model: nn.Module, optimizer=None, **options):
        logger = megalens.log_statistics(model, optimizer, hub=small_hub.address, **options)
        loggers.append(logger)
        # What is sent before there is a hub is given up.
        assert logger.tracer.connected(20)
        return logger

    def rows() -> dict[tuple[str, str, int], dict]:
        for logger in loggers:
            logger.close()
        loggers.clear()
        while (message := small_hub.messages.get(timeout=60))["type"] != "goodbye":
            if message["type"] == "announce":
                announced.append(message)
        found = {}
        while not small_hub.moments.empty():
            row = small_hub.moments.get()
            key = (row["stat"], row["name"], row["step"])
            assert key not in found, f"{key} came twice"
            found[key] = row
        return found

    begin.rows, begin.announced = rows, announced
    yield begin
    for logger in loggers:
        logger.close()
