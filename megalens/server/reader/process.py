"""The reading process, as the Jupyter server sees it.

Whatever others wrote is read there: a file that needs too much memory, takes long, or ends the process in a
library is the end of one question, and of no notebook. What the process was doing for others is asked again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, TypedDict

from tornado.http1connection import HTTP1Connection, HTTP1ConnectionParameters
from tornado.httputil import HTTPHeaders, HTTPMessageDelegate, RequestStartLine, ResponseStartLine
from tornado.iostream import IOStream, StreamClosedError
from tornado.tcpclient import TCPClient

from ..child_process import end_process, start_process
from ..errors import ServerError
from .between import MOST_HEADER, RUNS_HEADER, ReaderSettings, RunPlace

_MOST_ANSWER = 1 << 40
_PIECE = 1 << 18
_END_SECONDS = 2.0
_MOST_SECONDS = 600.0
_GIB = 1 << 30


class Question(TypedDict):
    """One request to the process. ``path`` begins with a slash, and may have a query."""

    method: str
    path: str
    body: bytes
    runs: Mapping[str, RunPlace]


class _Ended(Exception):
    """The process ended, or its connection, before the answer was whole."""


class Answer(HTTPMessageDelegate):
    """Takes an answer as it comes.

    ``began`` is whether some of it was passed on, ``unwanted`` whether nobody waits for it any more.
    """

    began = False
    whole = False
    unwanted = False

    def finish(self) -> None:
        self.whole = True


class Collected(Answer):
    """Holds a whole answer: its ``status``, and its body in ``pieces``."""

    status = 0

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> None:
        assert isinstance(start_line, ResponseStartLine)
        self.status = start_line.code

    def data_received(self, chunk: bytes) -> None:
        self.pieces.append(chunk)


class Reader:
    """The process, started at the first question and again after its end.

    Parameters
    ----------
    memory : int
        Most bytes of data that it may hold.
    limit_bytes, limit_rows : int
        Of one answer.
    executor : Executor
        Where it is awaited while it starts and ends.
    log : logger
        Takes a line when it ended by itself.
    engine : str
        The address of a Dask scheduler that answers what it can of the questions, or nothing.
    """

    def __init__(
        self,
        memory: int,
        limit_bytes: int,
        limit_rows: int,
        executor: Executor,
        log: logging.Logger,
        engine: str = "",
    ) -> None:
        self._settings: ReaderSettings = {
            "token": secrets.token_urlsafe(32),
            "memory": memory,
            "limit_bytes": limit_bytes,
            "limit_rows": limit_rows,
            "engine": engine,
        }
        self._executor = executor
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._port: asyncio.Future[int] | None = None
        self._closed = False
        # Questions that it ended over are asked again one at a time: so the one that ends it is known.
        self._again = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The process's id while there is one."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def warm_up(self) -> None:
        """Start the process before somebody asks; needs a running loop."""
        if self.pid is None and not self._closed:
            asyncio.ensure_future(self._started()).add_done_callback(lambda done: done.exception())

    async def tell(
        self,
        question: Question,
        answer: Callable[[], Answer],
        opened: Callable[[IOStream], None] | None = None,
    ) -> None:
        """Ask, and have ``answer()`` take what comes.

        ``opened`` gets the connection, whose close takes the question back. Raises ``ServerError`` when the
        process ends over it twice, or once after some of the answer was passed on.
        """
        for turn in (contextlib.nullcontext(), self._again):
            taking = answer()
            try:
                async with turn:
                    await asyncio.wait_for(self._exchange(question, taking, opened), _MOST_SECONDS)
                return
            except asyncio.TimeoutError:
                await asyncio.get_running_loop().run_in_executor(self._executor, self._end)
                raise ServerError(
                    413,
                    "too-large",
                    f"Reading this takes more than {_MOST_SECONDS / 60:.0f} minutes. Ask for fewer steps.",
                ) from None
            except _Ended:
                if taking.began or taking.unwanted:
                    break
        raise ServerError(
            409,
            "unreadable",
            "Reading this ended the process that reads files: the files are damaged in a way that no check "
            f"found, or need more than {self._settings['memory'] / _GIB:.3g} GiB. Other runs go on.",
        )

    async def ask(self, path: str, body: Any) -> dict[str, Any]:
        """Post JSON and return the JSON that comes; raises its error as ``ServerError``."""
        taken: list[Collected] = []

        def answer() -> Collected:
            taken.append(Collected())
            return taken[-1]

        await self.tell(
            {"method": "POST", "path": path, "body": json.dumps(body).encode(), "runs": {}}, answer
        )
        found: dict[str, Any] = json.loads(b"".join(taken[-1].pieces))
        if taken[-1].status != 200:
            raise ServerError(taken[-1].status, found["code"], found["message"], found.get("field"))
        return found

    async def close(self) -> None:
        """End the process for good. Safe twice."""
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(None, self._end)

    async def _exchange(
        self, question: Question, answer: Answer, opened: Callable[[IOStream], None] | None
    ) -> None:
        stream = await self._connected()
        try:
            if opened is not None:
                opened(stream)
            connection = HTTP1Connection(
                stream,
                True,
                HTTP1ConnectionParameters(
                    no_keep_alive=True,
                    max_header_size=MOST_HEADER,
                    max_body_size=_MOST_ANSWER,
                    chunk_size=_PIECE,
                ),
            )
            headers = HTTPHeaders(
                {
                    "Host": "127.0.0.1",
                    "Authorization": f"token {self._settings['token']}",
                    RUNS_HEADER: json.dumps(question["runs"]),
                    "Content-Length": str(len(question["body"])),
                    "Connection": "close",
                }
            )
            line = RequestStartLine(question["method"], question["path"], "HTTP/1.1")
            await connection.write_headers(line, headers, question["body"])
            connection.finish()
            await connection.read_response(answer)
        except StreamClosedError:
            pass
        finally:
            stream.close()
        if not answer.whole:
            raise _Ended

    async def _connected(self) -> IOStream:
        for _ in range(2):
            port = await self._started()
            try:
                return await TCPClient().connect("127.0.0.1", port)
            except OSError:
                # It ended a moment ago, unless another question has started it again meanwhile.
                if self._port is not None and self._port.done() and self._port.result() == port:
                    self._forget()
        raise _Ended

    async def _started(self) -> int:
        if self._process is not None and self._process.poll() is not None:
            self._log.warning(
                "Megalens: the process that reads files ended (exit code %s) and is started again.",
                self._process.returncode,
            )
            self._forget()
        if self._port is None:
            loop = asyncio.get_running_loop()
            self._port = asyncio.ensure_future(loop.run_in_executor(self._executor, self._start))
            self._port.add_done_callback(self._tried)
        return await asyncio.shield(self._port)

    def _tried(self, port: asyncio.Future[int]) -> None:
        """Let the next question start it again where this start failed."""
        if (port.cancelled() or port.exception() is not None) and self._port is port:
            self._port = None

    def _start(self) -> int:
        if self._closed:
            raise ServerError(503, "busy", "The Jupyter server is ending.")
        try:
            # What it has to say goes to the server's log.
            process = start_process([sys.executable, "-m", "megalens.server.reader"], stderr=None)
            assert process.stdin is not None
            assert process.stdout is not None
            self._process = process
            process.stdin.write(json.dumps(self._settings) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except (OSError, ValueError) as error:
            raise _not_started() from error
        if not line.strip().isdecimal():
            self._end()
            raise _not_started()
        return int(line)

    def _forget(self) -> None:
        self._port = None
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            end_process(process, _END_SECONDS)
            with contextlib.suppress(OSError):
                assert process.stdout is not None
                process.stdout.close()


def _not_started() -> ServerError:
    return ServerError(
        500, "internal", "The process that reads files could not be started. The server's log says more."
    )
