"""A child process that reads a pickled dump of the flight recorder from its input, and writes it as JSON.

With the argument ``memory`` it reads a memory snapshot of torch's, as a pickle or JSON, and writes a summary.

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
MOST_SNAPSHOT = 1 << 28
"""Of a memory snapshot."""
_MEMORY, _SNAPSHOT_MEMORY = 1 << 29, 3 << 30
_SECONDS = 30
_MOST_CALLS, _MOST_TENSORS, _MOST_AXES, _MOST_FRAMES = 100_000, 16, 16, 64
_MOST_GROUPS, _MOST_TEXT, _MOST_RANKS = 10_000, 300, 1 << 18
_MOST_DEVICES, _MOST_STRETCHES, _MOST_PLACES, _MOST_STACK = 64, 4_000, 1_000, 256
_NUMBERS = (
    "collective_seq_id",
    "pg_id",
    "time_created_ns",
    "time_discovered_started_ns",
    "time_discovered_completed_ns",
)


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a dump of torch names no {module[:50]}.{name[:50]}")


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


def summary(data: bytes) -> list[dict[str, Any]]:
    """Return of each device in a memory snapshot its sizes over time and what each line of code holds.

    ``stretches`` have start and end in µs, bytes allocated before and after, reserved, and the peak; ``held``
    the line, its bytes at the snapshot, and at the peak. Raises as :func:`plain`.
    """
    is_json = data.lstrip()[:1] == b"{"
    found = json.loads(data) if is_json else _PlainUnpickler(io.BytesIO(data)).load()
    traces = _list(found.get("device_traces"), _MOST_DEVICES)
    segments: dict[int, list[dict[Any, Any]]] = {}
    for each in map(_dict, _list(found["segments"], None)):
        segments.setdefault(_number(each.get("device")), []).append(each)
    devices = sorted({each for each, trace in enumerate(traces) if trace} | segments.keys())
    places: dict[int, str] = {}
    return [
        _device(
            device,
            segments.get(device, []),
            _list(traces[device], None) if device < len(traces) else [],
            places,
        )
        for device in devices[:_MOST_DEVICES]
        if device >= 0
    ]


def _device(
    device: int, segments: list[dict[Any, Any]], trace: list[Any], places: dict[int, str]
) -> dict[str, Any]:
    blocks = [_dict(block) for each in segments for block in _list(each.get("blocks"), None)]
    live = [each for each in blocks if each.get("state") == "active_allocated"]
    held: dict[str, int] = {}
    for block in live:
        # Older snapshots have the stack in a history.
        newest = _dict(next(iter(_list(block.get("history"), 1)), None))
        size, place = _number(block.get("size")), _place(block.get("frames") or newest.get("frames"), places)
        held[place] = held.get(place, 0) + size
    allocated, reserved = sum(held.values()), sum(_number(each.get("total_size")) for each in segments)
    changes = _changes(trace, places)
    begin = allocated - sum(each[1] for each in changes), reserved - sum(each[2] for each in changes)
    stretches, top = _stretches(changes, *begin)
    if not stretches:
        stretches = [[0, 1, allocated, allocated, reserved, allocated]]
    at_peak = dict(held)
    for _, change, _, place in reversed(changes[top:]):
        if change:
            at_peak[place] = at_peak.get(place, 0) - change
    both = {place: (held.get(place, 0), at_peak.get(place, 0)) for place in {*held, *at_peak}}
    named = sorted(both.items(), key=lambda each: (-max(each[1]), each[0]))[:_MOST_PLACES]
    return {
        "device": device,
        "stretches": stretches,
        "held": [[place, now, max(0, then)] for place, (now, then) in named if max(now, then) > 0],
    }


_Change = tuple[int, int, int, str]


def _changes(trace: list[Any], places: dict[int, str]) -> list[_Change]:
    """Return of each event its time in µs, what it changed of allocated and reserved, and whose that is."""
    found: list[_Change] = []
    owners: dict[int, str] = {}
    asked: set[int] = set()
    for number, each in enumerate(map(_dict, trace)):
        action, size, address = each.get("action"), _number(each.get("size")), _number(each.get("addr"))
        time = _number(each.get("time_us")) or number
        if action == "alloc":
            owners[address] = _place(each.get("frames"), places)
            found.append((time, size, 0, owners[address]))
        elif action == "free_requested" or (action == "free_completed" and address not in asked):
            found.append((time, -size, 0, owners.pop(address, "")))
            asked.add(address)
        elif action in ("segment_alloc", "segment_map"):
            found.append((time, 0, size, ""))
        elif action in ("segment_free", "segment_unmap"):
            found.append((time, 0, -size, ""))
        if action == "free_completed":
            asked.discard(address)
    return found


def _stretches(changes: list[_Change], allocated: int, reserved: int) -> tuple[list[list[int]], int]:
    """Return the sizes over time, and after how many changes most was allocated."""
    found: list[list[int]] = []
    top, highest = 0, allocated
    several = -(-len(changes) // _MOST_STRETCHES) or 1
    for first in range(0, len(changes), several):
        mine = changes[first : first + several]
        before = peak = allocated
        for number, (_, change, more, _) in enumerate(mine, first + 1):
            allocated, reserved = allocated + change, reserved + more
            peak = max(peak, allocated)
            if allocated > highest:
                top, highest = number, allocated
        following = changes[first + several][0] if first + several < len(changes) else mine[-1][0] + 1
        found.append([mine[0][0], max(mine[0][0], following), before, allocated, reserved, peak])
    return found, top


def _place(frames: Any, places: dict[int, str]) -> str:
    """Return the innermost line of a stack that is not of torch itself, with its function."""
    known = places.get(id(frames))
    if known is None:
        python = [
            (file, frame)
            for frame in map(_dict, _list(frames, _MOST_STACK))
            if (file := _text(frame.get("filename"), 4096)).endswith(".py")
        ]
        own = next(((file, frame) for file, frame in python if "/torch/" not in file), None)
        file, frame = own or next(iter(python), ("", {}))
        short = "/".join(file.split("/")[-2:])
        known = (
            f"{short}:{_number(frame.get('line'))} {_text(frame.get('name'))}"[:_MOST_TEXT] if file else ""
        )
        # The list is alive as long as this is asked, so that no other has its number.
        if isinstance(frames, (list, tuple)):
            places[id(frames)] = known
    return known


def _limit(memory: int) -> None:
    """Bound the process's memory and time, where the system can."""
    try:
        import resource
    except ImportError:
        return
    set_limit: Callable[[int, tuple[int, int]], None] = resource.setrlimit
    for what, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, _SECONDS)):
        set_limit(what, (most, most))


if __name__ == "__main__":
    of_memory = sys.argv[1:] == ["memory"]
    _limit(_SNAPSHOT_MEMORY if of_memory else _MEMORY)
    most = MOST_SNAPSHOT if of_memory else MOST_BYTES
    content = sys.stdin.buffer.read(most + 1)
    if len(content) > most:
        sys.exit("too large")
    text = json.dumps(summary(content) if of_memory else plain(content))
    # A text that a pickle holds once may be in it many times.
    if len(text) > MOST_BYTES:
        sys.exit("too large")
    sys.stdout.write(text)
