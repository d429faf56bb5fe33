"""The engine's process: V8 with the bundle of ``src/engine``. It is run by its path and imports nothing of
this package.

It reads messages from its standard input and writes others to its standard output, as ``protocol/README.md``
says, and ends with its input.
"""

from __future__ import annotations

import json
import os
import queue
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

MOST_BYTES = 512 * 1024 * 1024
"""Bound of one message."""

_HEAD = struct.Struct("<II")


class FrameError(ValueError):
    """A message is larger than the bound, or is not one."""


def pack_frame(message: dict[str, Any], body: bytes | memoryview = b"") -> bytes:
    """Return a message for the pipe: two lengths (32 bits, little-endian), JSON in ASCII, bytes.

    JSON in ASCII has every text, also lone surrogates, which UTF-8 refuses.
    """
    head = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii")
    if len(head) + len(body) > MOST_BYTES:
        raise FrameError(f"A message has {len(head) + len(body):,} bytes, more than {MOST_BYTES:,}.")
    return b"".join((_HEAD.pack(len(head), len(body)), head, body))


def read_frame(pipe: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
    """Read one message; None at the end, within a message too."""
    lengths = pipe.read(_HEAD.size)
    if len(lengths) < _HEAD.size:
        return None
    head, body = _HEAD.unpack(lengths)
    if head + body > MOST_BYTES:
        raise FrameError(f"A message has {head + body:,} bytes, more than {MOST_BYTES:,}.")
    text, data = pipe.read(head), pipe.read(body)
    if len(text) < head or len(data) < body:
        return None
    message = json.loads(text)
    if not isinstance(message, dict):
        raise FrameError("A message is not a JSON object.")
    return message, data


class _Engine:
    """The bundle in V8. Only ASCII comes out of V8: text with a lone surrogate would never arrive."""

    def __init__(self, bundle: str, most_memory: int) -> None:
        from py_mini_racer import MiniRacer

        racer = MiniRacer()
        racer.set_hard_memory_limit(most_memory)
        with open(bundle, encoding="utf-8") as file:
            racer.eval(file.read())
        call: Callable[[str], Any] = racer.eval
        self._racer = racer
        self.begin, self.answer, self.refuse, self._new_buffer, self._pump, self._bytes = (
            call(f"megalensEngine.{name}") for name in ("begin", "answer", "refuse", "room", "pump", "bytes")
        )

    def give(self, ask: int, text: str, body: bytes) -> None:
        """Hand an answer in, its bytes written into a buffer that V8 made."""
        if body:
            # V8's buffer is written to from here; a remaining reference would keep the process from ending.
            buffer = self._new_buffer(ask, len(body))
            buffer[:] = body
            del buffer
        self.answer(ask, text)

    def pump(self) -> list[tuple[dict[str, Any], bytes]]:
        """Run what is due, and return the job's messages."""
        messages = []
        for message in json.loads(self._pump()):
            position = message.pop("bytes", None)
            messages.append((message, b"" if position is None else bytes(self._bytes(position))))
        return messages


def main(bundle: str, most_memory: str, most_data: str) -> None:
    """Run jobs until the input ends.

    The bounds of V8's heap and of the process's data are in bytes; 0 for none.
    """
    # What a library prints must not get between messages.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    inbox: queue.SimpleQueue[tuple[dict[str, Any], bytes]] = queue.SimpleQueue()
    # Even an endless loop in V8 ends with the parent.
    threading.Thread(target=_listen, args=(sys.stdin.buffer, inbox), daemon=True).start()

    def say(message: dict[str, Any], body: bytes = b"") -> None:
        out.write(pack_frame(message, body))
        out.flush()

    try:
        _bound(int(most_data))
        engine = _Engine(bundle, int(most_memory))
    except Exception as error:
        say({"type": "broken", "code": "missing", "message": _words(error)})
        os._exit(1)
    say({"type": "ready"})
    try:
        while True:
            message, _ = inbox.get()
            if message.get("type") == "job":
                _run(engine, message, inbox, say)
    except Exception as error:
        # What V8 cannot bear it may not survive: the next job has a fresh one.
        with suppress(OSError):
            # What V8 ended at the bound of its memory threw nothing.
            memory = type(error).__name__ == "JSOOMException" or _words(error) in ("null", "MemoryError")
            code = "memory" if memory else "too-large" if isinstance(error, FrameError) else "failed"
            say({"type": "broken", "code": code, "message": _words(error)})
        os._exit(1)


def _run(
    engine: _Engine,
    job: dict[str, Any],
    inbox: queue.SimpleQueue[tuple[dict[str, Any], bytes]],
    say: Callable[..., None],
) -> None:
    """Run one job: send its messages, and give it the next answer when it is idle."""
    say({"type": "begun"})
    engine.begin(str(job["name"]), _ascii(job["args"]))
    while True:
        waits = False
        for message, body in engine.pump():
            kind = message["type"]
            if kind == "waits":
                waits = True
                continue
            if kind == "failed" and message["code"] == "memory":
                raise MemoryError
            say(message, body)
            if kind in ("done", "failed"):
                return
        if waits:
            message, body = inbox.get()
            if message["type"] == "answer":
                engine.give(message["ask"], _ascii(message["json"]), body)
            elif message["type"] == "refusal":
                engine.refuse(message["ask"], _ascii(message))


def _listen(pipe: IO[bytes], inbox: queue.SimpleQueue[tuple[dict[str, Any], bytes]]) -> None:
    with suppress(Exception):
        while (frame := read_frame(pipe)) is not None:
            inbox.put(frame)
    os._exit(0)


def _bound(most_data: int) -> None:
    with suppress(ImportError, ValueError, OSError):
        import resource

        # V8 reserves more address space than login nodes let a process have unless it asks for all it may.
        highest = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (highest, highest))
        if most_data:
            # Address space is what V8 reserves by the terabyte; data is what it uses.
            resource.setrlimit(resource.RLIMIT_DATA, (most_data, most_data))


def _ascii(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _words(error: Exception) -> str:
    # V8 appends the line of the script, which is the complete bundle.
    return (str(error).strip() or type(error).__name__).partition("\n")[0][:500]


if __name__ == "__main__":
    # Nothing may be imported from this folder.
    del sys.path[0]
    main(*sys.argv[1:])
