"""A run on other storage, opened by its address: a server that lists its folders, on loopback."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pytest
from recorded_run import RUN_ID, write_run


@pytest.fixture
def jp_server_config(jp_server_config, tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(tmp_path / "cache"))
    jp_server_config["MegalensExtension"]["storage"] = ["http"]
    return jp_server_config


@pytest.fixture
def storage(tmp_path):
    """Give an address, and the paths that were asked for there."""
    home, asked = tmp_path / "storage", []
    write_run(home / RUN_ID)

    class Listing(SimpleHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            super().do_GET()

        def log_message(self, *parts):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Listing, directory=str(home)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()
    thread.join()


async def test_an_address_opens_as_a_run_whose_rows_come_when_they_are_asked_for(ask, storage):
    address, asked = storage
    status, body, _ = await ask("statistics", body={"path": f" {address}/{RUN_ID} "})
    assert status == 200, body
    (entry,) = body["runs"]
    assert (entry["id"], entry["state"], entry["folder"]) == (RUN_ID, "recorded", None)
    assert [run["id"] for run in (await ask("runs"))[1]["runs"]] == [RUN_ID]
    assert not any(path.endswith("scalars.parquet") for path in asked)
    status, rows, _ = await ask("runs", RUN_ID, "streams", "scalars", body={})
    assert status == 200
    assert pa.ipc.open_stream(rows).read_all().num_rows > 0
    assert any(path.endswith("scalars.parquet") for path in asked)


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("s3://bucket/run", 403, "This server opens runs from http, not from s3://"),
        ("http://user:secret@127.0.0.1/run", 400, "must hold no password"),
        ("http://127.0.0.1/run?token=secret", 400, "must hold no password and no query"),
        ("{}/nothing", 404, "it has no run.json"),
    ],
)
async def test_an_address_that_may_not_be_used_is_refused_in_a_sentence(ask, storage, path, status, words):
    got, body, _ = await ask("statistics", body={"path": path.format(storage[0])})
    assert (got, body["field"]) == (status, "path")
    assert words in body["message"]
    assert "secret" not in body["message"]
