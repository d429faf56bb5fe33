"""``python -m megalens.hub.sealing``: seals the tails of a recording for its hub, in a process of its own.

A thread of a low priority would hold the interpreter's lock when it has to wait for a core, and with it the
hub.

Each line of its input is a JSON object: ``tail`` (a path), ``stream`` (a name), ``declared`` (the stream's
declaration, where it is none of this version's own), ``rows`` and ``file`` (device and number of the tail).
Each is answered by a line with ``tail`` and ``bytes`` of the segment, or ``failed``, why there is none. It
ends with its input, or when nothing came for a while.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..protocol import STREAMS, parse_stream
from .options import HubError
from .segment_file import seal_tail, sealed_bytes

_IDLE_SECONDS = 30.0
_NICENESS = 19


def main() -> int:
    if "--hurry" not in sys.argv[1:]:
        _stand_aside()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    with contextlib.suppress(BrokenPipeError):
        for line in _lines():
            print(json.dumps(_answer(json.loads(line))), flush=True)
    # Whoever read the answers may have gone.
    with contextlib.suppress(OSError):
        os.close(1)
    return 0


def _answer(job: dict[str, Any]) -> dict[str, Any]:
    name = job["stream"]
    try:
        stream = parse_stream(name, job["declared"]) if "declared" in job else STREAMS.named(name)
        device, number = job["file"]
        segment = seal_tail(Path(job["tail"]), stream, rows=job["rows"], identity=(device, number))
        return {"tail": job["tail"], "bytes": sealed_bytes(segment)}
    except OSError as error:
        return {"tail": job["tail"], "failed": error.strerror or str(error)}
    except (HubError, pa.ArrowException, ValueError, MemoryError) as error:
        return {"tail": job["tail"], "failed": str(error)[:500] or "out of memory"}


def _lines() -> Iterator[bytes]:
    rest = b""
    while select.select([0], [], [], _IDLE_SECONDS)[0] and (data := os.read(0, 1 << 16)):
        *lines, rest = (rest + data).split(b"\n")
        yield from lines


def _stand_aside() -> None:
    """Run only on idle cores, or at the lowest priority where the system cannot promise that."""
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (OSError, AttributeError):
        with contextlib.suppress(OSError, AttributeError):
            os.nice(_NICENESS)


if __name__ == "__main__":
    sys.exit(main())
