"""A memory snapshot that is nearly right, as JSON and as a pickle: a surface of ``tests.fuzz``."""

from typing import Any

from megalens.instruments.timeline.memory_snapshot import read_snapshots
from tests.instruments.timeline.fuzzed_flight_dumps import dumps_of

_WORDS = ("segments", "device_traces", "alloc", "free_completed", "active_allocated", "frames", "history")


def _snapshot() -> Any:
    frames = [{"filename": "/project/model.py", "line": 12, "name": "forward"}]
    blocks = [
        {"address": 4096, "size": 1024, "requested_size": 1000, "state": "active_allocated", "frames": frames}
    ]
    segment = {"device": 0, "address": 4096, "total_size": 8192, "stream": 0, "blocks": blocks}
    trace = [
        {"action": action, "addr": 4096, "size": 1024, "stream": 0, "time_us": 1_790_000_000_000_000 + at, "frames": frames}
        for at, action in enumerate(("segment_alloc", "alloc", "free_requested", "free_completed", "alloc"))
    ]  # fmt: skip
    return {"segments": [segment], "device_traces": [trace]}


SURFACE = dumps_of(read_snapshots, _snapshot(), _WORDS, ("rank_0.json", "rank_1.json"), "memory", pickles=0.5)
