"""A child process that reads a pickled dump of the flight recorder from its input, and writes it as JSON.

Run as a file, with nothing but the standard library: what a pickle costs, and a pickle that ends the process
that reads it, is this process's. Nothing is imported, called or made for a pickle but plain values.
"""

import io
import json
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any

MOST_BYTES = 1 << 26
"""Of a pickle, which holds the stack of each call too, and of what is made of it."""
_MEMORY = 1 << 29
_SECONDS = 30
_MOST_CALLS, _MOST_TENSORS, _MOST_AXES, _MOST_FRAMES = 100_000, 16, 16, 64
_MOST_GROUPS, _MOST_TEXT, _MOST_RANKS = 10_000, 300, 1 << 18
_NUMBERS = (
    "collective_seq_id",
    "pg_id",
    "time_created_ns",
    "time_discovered_started_ns",
    "time_discovered_completed_ns",
)


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a dump of the flight recorder names no {module[:50]}.{name[:50]}")


def plain(data: bytes) -> dict[str, Any]:
    """Return what a pickle says of groups and calls, each part of its type and no larger than it can be.

    Raises whatever a pickle that makes no sense leads to, and ``UnpicklingError`` for one that names a class
    or a function.
    """
    found = _PlainUnpickler(io.BytesIO(data)).load()
    calls = [each for each in _list(found["entries"], None)[-_MOST_CALLS:] if type(each) is dict]
    groups = _dict(found.get("pg_config"))
    status = _dict(found.get("pg_status"))
    return {
        "version": _text(found.get("version")),
        "pg_config": {
            name: {"ranks": _text(group.get("ranks"), _MOST_RANKS)} for name, group in _named(groups)
        },
        "pg_status": {
            name: {"last_enqueued_collective": _number(each.get("last_enqueued_collective"))}
            for name, each in _named(status)
        },
        "entries": [_call(each) for each in calls],
    }


def _call(call: dict[Any, Any]) -> dict[str, Any]:
    sizes = [
        [_number(axis) for axis in _list(each, _MOST_AXES)]
        for each in _list(call.get("input_sizes"), _MOST_TENSORS)
    ]
    return {
        **{name: _number(call.get(name)) for name in _NUMBERS},
        "profiling_name": _text(call.get("profiling_name")),
        "process_group": [_text(each) for each in _list(call.get("process_group"), 2)],
        "state": _text(call.get("state")),
        "retired": call.get("retired") is True,
        "is_p2p": call.get("is_p2p") is True,
        "input_sizes": sizes,
        "input_dtypes": [_text(each) for each in _list(call.get("input_dtypes"), _MOST_TENSORS)],
        "where": _where(call),
    }


def _where(call: dict[Any, Any]) -> str:
    """Return the innermost line of a call's stack that is not of torch itself."""
    for frame in _list(call.get("frames"), _MOST_FRAMES):
        if type(frame) is dict:
            file = _text(frame.get("filename"))
            if file and "/torch/" not in file:
                return f"{file.rpartition('/')[2]}:{_number(frame.get('line'))}"
    return ""


def _named(groups: dict[Any, Any]) -> Iterator[tuple[str, dict[Any, Any]]]:
    for name in list(groups)[:_MOST_GROUPS]:
        yield _text(name) or str(_number(name)), _dict(groups[name])


def _dict(value: Any) -> dict[Any, Any]:
    return value if type(value) is dict else {}


def _list(value: Any, most: int | None) -> list[Any]:
    return list(value[:most]) if type(value) in (list, tuple) else []


def _number(value: Any) -> int:
    return value if type(value) is int and abs(value) < 1 << 62 else 0


def _text(value: Any, most: int = _MOST_TEXT) -> str:
    return value[:most] if type(value) is str else ""


def _limit() -> None:
    """Bound the process's memory and time, where the system can."""
    try:
        import resource
    except ImportError:
        return
    set_limit: Callable[[int, tuple[int, int]], None] = resource.setrlimit
    for what, most in ((resource.RLIMIT_AS, _MEMORY), (resource.RLIMIT_CPU, _SECONDS)):
        set_limit(what, (most, most))


if __name__ == "__main__":
    _limit()
    content = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        sys.exit("too large")
    text = json.dumps(plain(content))
    # A text that a pickle holds once may be in it many times.
    if len(text) > MOST_BYTES:
        sys.exit("too large")
    sys.stdout.write(text)
