"""A real Jupyter server with the extension, recorded runs in its root and live ones beside it."""

import json

import pytest
from live_run import live_runs

# The plugin's fixtures belong to this folder alone: one of them makes a server for every test.
from pytest_jupyter.jupyter_server import *  # noqa: F403
from recorded_run import write_run
from tornado.httpclient import AsyncHTTPClient, HTTPClientError
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from megalens.server.reader.__main__ import application
from megalens.server.reader.between import RUNS_HEADER


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    folder = tmp_path / "megalens-runtime"
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture
def outside(tmp_path):
    """A folder of runs outside the server's root, named by the administrator."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


@pytest.fixture
def jp_server_config(runtime, outside):
    return {
        "ServerApp": {"jpserver_extensions": {"megalens.server": True}},
        "MegalensExtension": {
            "run_folders": ["megalens-runs", str(outside)],
            "allowed_hubs": ["127.0.0.1:*"],
        },
    }


@pytest.fixture
def jp_nbconvert_templates():
    """No test of ours converts a notebook on the server: the plugin would copy its templates for each."""


@pytest.fixture(scope="session", autouse=True)
def server_without_git():
    """The server asks git for its commit each time it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jupyter_server._sysinfo.pkg_commit_hash", lambda path: ("", "unknown"))
        yield


@pytest.fixture
def run_folder(jp_root_dir):
    return write_run(jp_root_dir / "megalens-runs" / "20261120-101500-gpt-demo")


@pytest.fixture
def live(runtime, outside):
    """Start live runs, and end every one that is left."""
    with live_runs(runtime) as start:
        yield start


@pytest.fixture
def ask_reader(jp_root_dir, jp_asyncio_loop):
    """Ask the application of the reading process, here in this process, where a test can change it.

    Runs are those right below ``megalens-runs``. Returns status and JSON.
    """
    token = "of-the-test"
    made = application(
        {"token": token, "memory": 0, "limit_bytes": 1 << 26, "limit_rows": 1_000_000, "engine": ""}
    )
    (listening,) = bind_sockets(0, "127.0.0.1")
    server = HTTPServer(made)

    async def listen():
        server.add_socket(listening)

    jp_asyncio_loop.run_until_complete(listen())

    async def fetch(*path, body=None, token=token):
        places = {
            each.name: {"name": each.name, "folder": str(each)}
            for each in (jp_root_dir / "megalens-runs").glob("*")
        }
        answer = await AsyncHTTPClient().fetch(
            f"http://127.0.0.1:{listening.getsockname()[1]}/{'/'.join(path)}",
            method="GET" if body is None else "POST",
            body=None if body is None else json.dumps(body),
            headers={"Authorization": f"token {token}", RUNS_HEADER: json.dumps(places)},
            raise_error=False,
        )
        return answer.code, json.loads(answer.body)

    yield fetch
    server.stop()
    jp_asyncio_loop.run_until_complete(made.settings["moments"].close())
    for name in ("files", "heavy"):
        made.settings[name].shutdown()


@pytest.fixture
def ask(jp_fetch):
    """Ask an endpoint; return status, body (JSON where it is JSON) and headers, never raising."""

    async def fetch(*path, body=None, **options):
        if body is not None:
            options["body"] = body if isinstance(body, (str, bytes)) else json.dumps(body)
            options.setdefault("method", "POST")
        try:
            answer = await jp_fetch("megalens", "api", *path, **options)
        except HTTPClientError as error:
            answer = error.response
        kind = answer.headers.get("Content-Type", "")
        return (
            answer.code,
            json.loads(answer.body) if kind.startswith("application/json") else answer.body,
            answer.headers,
        )

    return fetch
