"""``python -m megalens.server.reader``: answers the Jupyter server's questions about files, on loopback.

Its first line of input is a JSON object of settings, its only line of output the port.
It ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application

from ...slices import find_slices, load
from ..json_requests import MOST_BODY
from .between import MOST_HEADER, ReaderSettings
from .courses_handler import ComparedHandler
from .memory import Wear, limit_memory, take_small_pages
from .moment_pool import MomentPool
from .moments_handlers import MomentGroupsHandler, MomentRowsHandler, MomentsHandler, MomentTasksHandler
from .read_handler import NoEndpoint
from .run_summaries import RunSummaries
from .runs_handlers import (
    DescriptionHandler,
    ForeignFilesHandler,
    IndexHandler,
    LastLossesHandler,
    LinesHandler,
    MirrorHandler,
    ReportHandler,
    StreamHandler,
)
from .served_runs import ServedRuns

_RUN = r"/runs/([^/]+)"
_HANDLERS: tuple[tuple[str, type[Any]], ...] = (
    (_RUN, DescriptionHandler),
    (rf"{_RUN}/index", IndexHandler),
    (rf"{_RUN}/lines/(tensors|scalars)", LinesHandler),
    (rf"{_RUN}/streams/([^/]+)", StreamHandler),
    (rf"{_RUN}/moments", MomentsHandler),
    (rf"{_RUN}/moments/tasks", MomentTasksHandler),
    (rf"{_RUN}/moments/rows", MomentRowsHandler),
    (rf"{_RUN}/moments/groups", MomentGroupsHandler),
    (rf"{_RUN}/report", ReportHandler),
    (r"/summaries", LastLossesHandler),
    (r"/courses", ComparedHandler),
    (r"/foreign", ForeignFilesHandler),
    (r"/mirror", MirrorHandler),
)
# The list of places of the runs of a table may be long; what a browser sent is bounded by the server.
_MOST_BODY = 64 * MOST_BODY


def handlers() -> list[tuple[str, type[Any]]]:
    """Return every endpoint, those of slices too."""
    others = [load(each.endpoints) for each in find_slices() if each.endpoints]
    return [*_HANDLERS, *((f"{_RUN}/{path}", handler) for pairs in others for path, handler in pairs)]


def application(settings: ReaderSettings) -> Application:
    """Return what answers."""
    runs = ServedRuns(settings["engine"])
    return Application(
        handlers(),
        default_handler_class=NoEndpoint,
        # Errors are logged by their handlers; each question of a page is no news.
        log_function=lambda handler: None,
        token=settings["token"],
        runs=runs,
        moments=MomentPool(runs.moments),
        summaries=RunSummaries(),
        courses={},
        wear=Wear(),
        limit_bytes=settings["limit_bytes"],
        limit_rows=settings["limit_rows"],
        files=ThreadPoolExecutor(4, "megalens-files"),
        heavy=ThreadPoolExecutor(1, "megalens-heavy"),
    )


async def serve(settings: ReaderSettings) -> None:
    """Answer until this process ends."""
    answering = application(settings)
    (listening,) = bind_sockets(0, "127.0.0.1")
    server = HTTPServer(answering, max_header_size=MOST_HEADER, max_body_size=_MOST_BODY)
    server.add_socket(listening)
    print(listening.getsockname()[1], flush=True)
    # Nobody reads its output any more; what a library prints goes to the server's log.
    os.dup2(2, 1)
    # The first question of a page is about statistics.
    answering.settings["moments"].warm_up()
    await asyncio.Event().wait()


def _end_with_input() -> None:
    """End this process with the server: nothing here is worth waiting for."""
    while os.read(0, 1 << 16):
        pass
    os._exit(0)


def main() -> None:
    settings: ReaderSettings = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    limit_memory(settings["memory"])
    take_small_pages()
    asyncio.run(serve(settings))


if __name__ == "__main__":
    main()
