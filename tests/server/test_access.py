"""Who may ask: every endpoint of the extension refuses without the session's login, and nothing secret leaves it."""

import json
import logging
import re

import pytest
from live_run import LiveRun
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.web import RequestHandler
from tornado.websocket import WebSocketHandler, websocket_connect

from megalens.server.extension import HANDLERS
from megalens.server.page_handler import PageFilesHandler, PageHandler

# Who opens a page without a login is sent to the form, as with every page of Jupyter.
PAGES = (PageHandler, PageFilesHandler)
METHODS = ("get", "head", "post", "put", "patch", "delete")


def registered(web_app):
    """Every (pattern, handler class) of the extension that the running server has."""
    found = []
    for rule in web_app.default_router.rules:
        for inner in getattr(rule.target, "rules", []):
            target = inner.target
            if isinstance(target, type) and target.__module__.startswith("megalens."):
                found.append((inner.matcher.regex.pattern, target))
    return found


def paths_of(web_app, base_url, run_id="some-run"):
    """A concrete path for every pattern, with its handler."""
    result = []
    for pattern, handler in registered(web_app):
        pattern = pattern.removesuffix("$")
        path = pattern.replace("streams/([^/]+)", "streams/tensors").replace("([^/]+)", run_id)
        # One path for each of the names that a handler serves.
        choice = re.search(r"\((\w+(?:\|\w+)+)\)", path)
        for name in choice[1].split("|") if choice else [""]:
            one = path.replace(choice[0], name) if choice else path
            assert one.startswith(base_url), one
            assert re.fullmatch(pattern, one)
            result.append((one, handler))
    return result


def requests_of(web_app, base_url):
    """Each method of every endpoint: path, method and body, and the handler."""
    for path, handler in paths_of(web_app, base_url):
        methods = [name for name in METHODS if getattr(handler, name) is not getattr(RequestHandler, name)]
        assert methods, handler
        for method in methods:
            body = b"{}" if method in ("post", "put", "patch") else None
            yield path, {"method": method.upper(), "body": body}, handler


def refusal(handler):
    return 302 if handler in PAGES else 403


async def status_of(client, path, **options):
    options.setdefault("follow_redirects", False)
    answer = await client.fetch(path, raise_error=False, allow_nonstandard_methods=True, **options)
    return answer.code


def test_the_walk_sees_every_endpoint(jp_web_app, jp_base_url):
    assert sorted(handler.__name__ for _, handler in registered(jp_web_app)) == sorted(
        handler.__name__ for _, handler in HANDLERS
    )
    assert len(HANDLERS) >= 8


@pytest.mark.parametrize("headers", [{}, {"Authorization": "token wrong"}])
async def test_every_endpoint_refuses_without_login(jp_web_app, jp_base_url, http_server_client, headers):
    for path, request, handler in requests_of(jp_web_app, jp_base_url):
        code = await status_of(http_server_client, path, headers=headers, **request)
        assert code == refusal(handler), f"{request['method']} {path} answered {code}"


async def test_a_websocket_without_login_is_not_opened(
    jp_web_app, jp_base_url, jp_http_port, http_server_client, live
):
    run = live()
    for path, handler in paths_of(jp_web_app, jp_base_url, run.id):
        if issubclass(handler, WebSocketHandler):
            with pytest.raises(HTTPClientError) as caught:
                await websocket_connect(f"ws://localhost:{jp_http_port}{path}", subprotocols=["megalens.v2"])
            assert caught.value.code == 403


async def log_in(client, base_url, token, port):
    """Return the headers of a browser that logged in with the token: cookies and the XSRF token."""
    answer = await client.fetch(
        f"{base_url}login?token={token}",
        follow_redirects=False,
        raise_error=False,
        headers={"Host": f"localhost:{port}"},
    )
    # The page with the form sets the XSRF cookie.
    again = await client.fetch(f"{base_url}login", raise_error=False)
    jar = {}
    for header in [*answer.headers.get_list("Set-Cookie"), *again.headers.get_list("Set-Cookie")]:
        name, _, value = header.split(";")[0].partition("=")
        if value:
            jar[name] = value
    return jar


def browser(jar, port, origin=None, xsrf=None):
    headers = {
        "Cookie": "; ".join(f"{name}={value}" for name, value in jar.items()),
        "Host": f"localhost:{port}",
    }
    if origin:
        headers["Origin"] = origin
    if xsrf:
        headers["X-XSRFToken"] = xsrf
    return headers


async def test_a_cookie_works_at_home_and_not_from_another_origin(
    jp_web_app, jp_serverapp, jp_base_url, jp_http_port, http_server_client
):
    jar = await log_in(http_server_client, jp_base_url, jp_serverapp.identity_provider.token, jp_http_port)
    home = browser(jar, jp_http_port, f"http://localhost:{jp_http_port}")
    assert await status_of(http_server_client, f"{jp_base_url}megalens/api/runs", headers=home) == 200
    foreign = browser(jar, jp_http_port, "http://evil.example")
    for path, request, handler in requests_of(jp_web_app, jp_base_url):
        if not issubclass(handler, (WebSocketHandler, *PAGES)):
            code = await status_of(http_server_client, path, headers=foreign, **request)
            assert code in (403, 404), f"{request['method']} {path} answered {code}"


async def test_a_cookie_from_another_origin_opens_no_websocket(
    jp_web_app, jp_serverapp, jp_base_url, jp_http_port, http_server_client, live
):
    run = live()
    jar = await log_in(http_server_client, jp_base_url, jp_serverapp.identity_provider.token, jp_http_port)
    url = f"ws://localhost:{jp_http_port}{jp_base_url}megalens/ws/runs/{run.id}"
    home = HTTPRequest(url, headers=browser(jar, jp_http_port, f"http://localhost:{jp_http_port}"))
    socket = await websocket_connect(home, subprotocols=["megalens.v2"])
    socket.close()
    foreign = HTTPRequest(url, headers=browser(jar, jp_http_port, "http://evil.example"))
    with pytest.raises(HTTPClientError) as caught:
        await websocket_connect(foreign, subprotocols=["megalens.v2"])
    assert caught.value.code == 403


async def test_a_write_with_a_cookie_needs_the_xsrf_token(
    jp_serverapp, jp_base_url, jp_http_port, http_server_client, run_folder
):
    jar = await log_in(http_server_client, jp_base_url, jp_serverapp.identity_provider.token, jp_http_port)
    path = f"{jp_base_url}megalens/api/runs/{run_folder.name}"
    origin = f"http://localhost:{jp_http_port}"
    body = json.dumps({"name": "other"})
    without = browser(jar, jp_http_port, origin)
    assert await status_of(http_server_client, path, method="PATCH", body=body, headers=without) == 403
    assert await status_of(http_server_client, path, method="DELETE", headers=without) == 403
    for name in ("hubs", "demo", "statistics", f"runs/{run_folder.name}/report"):
        code = await status_of(
            http_server_client, f"{jp_base_url}megalens/api/{name}", method="POST", body="{}", headers=without
        )
        assert code == 403
    assert await status_of(http_server_client, f"{jp_base_url}megalens/api/demo", headers=without) == 200
    assert json.loads((run_folder / "run.json").read_text())["run"]["name"] == "gpt-demo"
    with_token = browser(jar, jp_http_port, origin, jar["_xsrf"])
    assert await status_of(http_server_client, path, method="PATCH", body=body, headers=with_token) == 200


async def test_no_answer_and_no_log_line_has_a_token_or_an_absolute_path(
    ask, live, run_folder, outside, tmp_path, caplog, jp_ws_fetch, jp_logging_stream, jp_root_dir
):
    caplog.set_level(logging.DEBUG)
    run: LiveRun = live("--record", outside)
    run.step(3)
    said = []

    async def note(*path, **options):
        status, body, headers = await ask(*path, **options)
        said.append(f"{status} {body!r} {dict(headers)!r}")

    await note("runs")
    for run_id in (run.id, run_folder.name, "no-such-run", "..%2f"):
        await note("runs", run_id)
        await note("runs", run_id, "index")
        for stream in ("tensors", "scalars", "audit", "nothing"):
            await note("runs", run_id, "streams", stream, body={})
        await note("runs", run_id, method="PATCH", body={"name": "x"})
        await note("runs", run_id, method="PATCH", body={"name": ""})
        await note("runs", run_id, "moments")
        await note("runs", run_id, "moments", "rows", body={"stats": ["param"]})
        await note("runs", run_id, "moments", "groups", body={"stat": "param", "statistic": "l2", "by": []})
    for path in ("", "nothing", "../elsewhere", str(tmp_path), str(run_folder), None):
        await note("statistics", body={"path": path})
    await note("hubs", body={"address": run.address, "token": run.token})
    await note("hubs", body={"address": "ws://127.0.0.1:1", "token": run.token})
    await note("hubs", body={"address": "ws://10.0.0.1:1", "token": run.token})
    await note("runs", run_folder.name, "report", body={"format": "html", "views": [{"view": "none"}]})
    (run_folder / "audit.parquet").write_bytes(b"garbage")
    await note("runs", run_folder.name, "streams", "audit", body={})
    socket = await jp_ws_fetch("megalens", "ws", "runs", run.id, subprotocols=["megalens.v2"])
    await socket.write_message(
        '{"type":"join","protocol":"megalens.v2","role":"viewer","peer":{"name":"p","version":"0"}}'
    )
    for _ in range(4):
        said.append(repr(await socket.read_message()))
    run.kill_hub()
    while (data := await socket.read_message()) is not None:
        said.append(repr(data))
    said.append(f"{socket.close_code} {socket.close_reason}")
    await note("runs")
    await note("runs", run.id)
    answers = "\n".join(said)
    mine = "\n".join(
        record.getMessage()
        for record in caplog.records
        if record.name.startswith(("megalens", "websockets", "Megalens"))
    )
    logged = "\n".join(record.getMessage() for record in caplog.records) + jp_logging_stream.getvalue()
    assert len(said) > 30
    assert run.token not in answers
    assert str(tmp_path) not in answers
    assert "/work/" not in answers
    assert run.token not in logged
    assert str(tmp_path) not in mine


async def test_who_may_only_read_may_ask_for_rows(ask, run_folder, jp_serverapp, monkeypatch):
    def only_reads(self, handler, user, action, resource):
        return action == "read"

    monkeypatch.setattr(type(jp_serverapp.authorizer), "is_authorized", only_reads)
    run = ("runs", run_folder.name)
    assert (await ask(*run, "streams", "scalars", body={}))[0] == 200
    assert (await ask(*run, "lines", "scalars", body={}))[0] == 200
    assert (await ask(*run, method="PATCH", body={"name": "other"}))[0] == 403
