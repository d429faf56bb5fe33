"""The ``hello`` of a run that no hub speaks for."""

from __future__ import annotations

from ..protocol import compressor_infos
from ..protocol.messages_generated import Hello, RunInfo

__all__ = ["bare_hello"]


def bare_hello(run: RunInfo) -> Hello:
    """Return a ``hello`` that says as much as is known of recorded files: no model, no flags, and limits that bound nothing."""
    return {
        "type": "hello",
        "protocol": "megalens.v2",
        "run": run,
        "seq": 0,
        "model": None,
        "layout": None,
        "flags": [],
        "compressors": compressor_infos(),
        "config": {"flags": {}},
        "limits": {"max_message_bytes": 1 << 20, "viewer_queue_bytes": 1, "backlog_bytes": 1},
        "versions": {},
    }
