"""Every REST endpoint, asked by somebody who is logged in: paths, queries and bodies."""

import asyncio
import json
import logging
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

from recorded_moments import write_moments, write_tree
from recorded_run import RUN_ID, write_run
from tornado import httputil
from traitlets.config import Config

from megalens.pictures.engine import EngineError
from tests.fuzz.mutate import hostile_text, json_text, mutated_text, mutated_tree
from tests.fuzz.surface import Surface
from tests.fuzz.surfaces.view_options import made_options

_TOKEN = "let-me-in"
_MOMENTS = "20261120-101500-moments"
_REQUESTS = json.loads(
    (Path(__file__).parents[3] / "protocol" / "fixtures" / "requests.json").read_text("utf-8")
)
_PATHS = {
    "StreamRequest": (f"runs/{RUN_ID}/streams/tensors", f"runs/{RUN_ID}/streams/audit"),
    "TrendRequest": (f"runs/{RUN_ID}/lines/tensors",),
    "ScalarsRequest": (f"runs/{RUN_ID}/lines/scalars",),
    "MomentRowsRequest": (f"runs/{_MOMENTS}/moments/rows",),
    "MomentGroupsRequest": (f"runs/{_MOMENTS}/moments/groups",),
    "TimelineRequest": (f"runs/{RUN_ID}/timeline",),
    "PipelineStepsRequest": (f"runs/{RUN_ID}/pipeline",),
    "AlarmCountRequest": (f"runs/{RUN_ID}/alarms/count",),
    "StatisticsRequest": ("statistics",),
}
_WORDS = (
    "stats",
    "where",
    "steps",
    "limit_rows",
    "by",
    "pattern",
    "exclude",
    "layers",
    "family",
    "views",
    "title",
    "format",
    "options",
    "path",
    "name",
    "since",
    "wait",
)
_PIECES = (
    "/",
    "//",
    "..",
    "%2f",
    "%00",
    "%ff",
    "?",
    "&",
    "=",
    "#",
    "runs",
    RUN_ID,
    "streams",
    "tensors",
    ";",
    "%",
    "+",
    "~",
    "\\",
)


def _seeds() -> list[Any]:
    run, moments = f"runs/{RUN_ID}", f"runs/{_MOMENTS}"
    gets = [
        *(("runs", {}), (run, {}), (f"{run}/index", {}), (f"{moments}/moments", {"wait": "0"})),
        *(("demo", {}), ("runs/none", {})),
    ]
    posts = [
        *((path, case["value"]) for case in _REQUESTS for path in _PATHS[case["request"]]),
        (
            f"{run}/streams/tensors",
            {"flag": "MLP1_mat_mul", "layers": [1, 2], "steps": [3, 9], "rank": 0, "part": ""},
        ),
        *(
            ("statistics", {"path": "elsewhere"}),
            ("statistics", {"path": "megalens-runs"}),
            ("demo", {"x": 1}),
        ),
        ("hubs", {"address": "ws://127.0.0.1:9", "token": "abc"}),
        (
            "hubs",
            {
                "address": "ws://127.0.0.1:9",
                "dialect": "3606",
                "config": {"flags": {}},
                "prompts": ["a"],
                "tokens": 3,
            },
        ),
        *[(f"{run}/report", {"format": kind, "views": None, "title": "a"}) for kind in ("html", "ipynb")],
    ]
    return [
        *(["GET", path, query, None] for path, query in gets),
        *(["POST", path, {}, body] for path, body in posts),
        *(["PATCH", run, {}, {"name": "renamed"}], ["DELETE", "hubs", {"run": "x"}, None]),
    ]


def _mutate(chance: Random, seed: Any) -> Any:
    method, path, query, body = seed
    if body is not None and "views" in body:
        body = {**body, "views": [made_options(chance) for _ in range(chance.choice((1, 1, 3)))]}
    text = None if body is None else json.dumps(body)
    kind = chance.random()
    if kind < 0.15:
        path = mutated_text(chance, path, _PIECES)
    elif kind < 0.2:
        method = chance.choice(("GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS"))
    if body is not None and kind > 0.1:
        text = json_text(chance, mutated_tree(chance, body, _WORDS))
    elif kind > 0.1:
        query = {name: chance.choice((value, hostile_text(chance))) for name, value in query.items()}
        if chance.random() < 0.3:
            query[chance.choice(_WORDS)] = hostile_text(chance)
    asked = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in query.items())
    return [method, path, asked, text]


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"))


class _Connection:
    """Takes an answer in place of a socket."""

    def __init__(self) -> None:
        self.context = httputil.HTTPServerConnectionDelegate()
        self.context.remote_ip = "127.0.0.1"
        self.context.protocol = "http"
        self.context.address = ("127.0.0.1", 1)
        self.finished = asyncio.Event()
        self.status, self.headers, self.body = 0, httputil.HTTPHeaders(), b""

    def set_close_callback(self, _: Any) -> None:
        """Nobody goes away here."""

    def write_headers(self, start: Any, headers: Any, chunk: bytes = b"") -> Any:
        self.status, self.headers = start.code, headers
        for name, value in headers.get_all():
            assert "\n" not in name + value
        return self.write(chunk or b"")

    def write(self, chunk: bytes) -> Any:
        self.body += chunk
        written = _loop().create_future()
        written.set_result(None)
        return written

    def finish(self) -> None:
        self.finished.set()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@cache
def _application() -> Any:
    """Return the Jupyter server's application over a root with a run, statistics of a run and a tree of them."""
    root = Path(tempfile.mkdtemp())
    for name in ("CONFIG", "DATA", "RUNTIME"):
        os.environ[f"JUPYTER_{name}_DIR"] = str(root / "home" / name)
    os.environ["MEGALENS_RUNTIME_DIR"] = str(root / "home" / "hubs")
    write_run(root / "root" / "megalens-runs" / RUN_ID, steps=12)
    run = {"id": _MOMENTS, "name": "moments", "started": 1.0}
    folder = write_moments(root / "root" / "megalens-runs" / _MOMENTS, steps=12)
    header = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**header, "run": run}))
    write_tree(root / "root" / "elsewhere")
    from jupyter_server.serverapp import ServerApp

    import megalens.pictures.report.build as build
    from megalens.server.forward import MegalensHandler
    from megalens.server.reader.read_handler import ReadHandler

    def no_engine(*_: Any, **__: Any) -> Any:
        raise EngineError("There is no engine here.")

    def raised(handler: Any, kind: Any, error: BaseException, trace: Any) -> None:
        _raised.append(error)

    # A report's pictures are the engine's; up to there everything is real.
    build.run_job = no_engine
    MegalensHandler.log_exception = raised
    ReadHandler.log_exception = raised
    config = Config(
        {
            "ServerApp": {"jpserver_extensions": {"megalens.server": True}},
            "IdentityProvider": {"token": _TOKEN},
        }
    )
    config.NotebookNotary.db_file = ":memory:"
    app = ServerApp(
        config=config,
        root_dir=str(root / "root"),
        open_browser=False,
        allow_root=True,
        port_retries=0,
        log_level=logging.CRITICAL,
    )
    app.init_signal = lambda: None

    async def begin() -> None:
        app.initialize(argv=[], new_httpserver=False)

    _loop().run_until_complete(begin())
    app.web_app.settings["megalens_reader"] = _loop().run_until_complete(_reader())
    return app.web_app


async def _reader() -> Any:
    """Return the reading process, but in this process: its time and memory are measured, and its errors seen."""
    from tornado.httpserver import HTTPServer
    from tornado.netutil import bind_sockets

    from megalens.server.reader import process
    from megalens.server.reader.__main__ import application

    class Here(process.Reader):
        async def _started(self) -> int:
            return int(listening.getsockname()[1])

    reader = Here(0, 1 << 26, 1_000_000, ThreadPoolExecutor(1), logging.getLogger("reader"))
    (listening,) = bind_sockets(0, "127.0.0.1")
    HTTPServer(application(reader._settings), max_header_size=1 << 20).add_socket(listening)
    return reader


_raised: list[BaseException] = []


def _run(given: Any) -> bool:
    method, path, query, body = given
    application = _application()
    connection = _Connection()
    uri = quote(f"/megalens/api/{path}".encode("utf-8", "surrogatepass"), safe="/%?&=+;~#.") + (
        f"?{query}" if query else ""
    )
    request = httputil.HTTPServerRequest(
        method,
        uri,
        headers=httputil.HTTPHeaders(
            {"Authorization": f"token {_TOKEN}", "Host": "localhost", "Content-Type": "application/json"}
        ),
        body=b"" if body is None else body.encode("utf-8", "surrogatepass"),
        connection=connection,
    )

    async def ask() -> None:
        application.find_handler(request).execute()
        await connection.finished.wait()

    _raised.clear()
    _loop().run_until_complete(ask())
    if connection.status == 500:
        raise _raised[0] if _raised else AssertionError(connection.body[:500])
    if not request.path.startswith("/megalens/api/"):
        return False
    if (connection.headers.get("Content-Type") or "").startswith("application/json") and connection.body:
        answer = json.loads(connection.body.decode("utf-8"), parse_constant=_refuse)
        if connection.status >= 400 and "/runs" in path:
            assert set(answer) >= {"code", "message"} or "<" not in str(answer)
            assert str(_loop) not in str(answer)
    return connection.status < 400


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


SURFACE = Surface(_seeds, _mutate, _run, ())
