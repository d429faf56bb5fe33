"""The page /megalens/, and the command that opens it."""

import json
import os
import re
import signal
import subprocess
import sys
from urllib.request import urlopen

import pytest
from live_run import LiveRun
from recorded_moments import write_tree
from recorded_run import write_run
from tornado.httpclient import HTTPClientError

from megalens.runs.languages import chosen_locale
from megalens.server import page_handler


@pytest.fixture
def built(tmp_path, monkeypatch):
    """A built page, and two extensions with a third that has nothing to do with views."""
    page = tmp_path / "page"
    page.mkdir()
    (page / "page.js").write_text("start();")
    (page / "page.css").write_text("body {}")
    monkeypatch.setattr(page_handler, "_BUILT", page)
    page_handler._stamp.cache_clear()
    for name, dependencies in (("other", {}), ("@lab/norms", {"megalens": "^0.1"}), ("megalens", {})):
        folder = tmp_path / "jupyter" / "labextensions" / name
        (folder / "static").mkdir(parents=True)
        (folder / "static" / "entry.js").write_text(f"// {name}")
        build = {"load": "static/entry.js", "extension": "./extension", "secret": "no"}
        package = {"name": name, "dependencies": dependencies, "jupyterlab": {"_build": build}}
        (folder / "package.json").write_text(json.dumps(package))
    broken = tmp_path / "jupyter" / "labextensions" / "broken"
    broken.mkdir()
    (broken / "package.json").write_text("[")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    yield
    page_handler._stamp.cache_clear()


def config_of(text):
    return json.loads(re.search(r'id="jupyter-config-data">(.*?)</script>', text)[1])


async def test_the_page_names_its_run_and_the_extensions_with_views(built, jp_fetch):
    answer = await jp_fetch("megalens", "view", "a<b", "timeline")
    config = config_of(answer.body.decode())["megalens"]
    assert (config["run"], config["view"]) == ("a<b", "timeline")
    assert config["extensions"] == [
        {"name": name, "load": "static/entry.js", "extension": "./extension"}
        for name in ("megalens", "@lab/norms")
    ]


@pytest.mark.parametrize(
    ("accepted", "locale"),
    [
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh_CN"),
        ("fr-FR, zh;q=0.7, en;q=0.3", "zh_CN"),
        ("zh-Hans-SG", "zh_CN"),
        ("zh-TW,zh-Hant;q=0.9", ""),
        ("en-GB,zh-CN;q=0.9", ""),
        ("zh-CN;q=x, ;;, *", ""),
        ("", ""),
    ],
)
def test_the_page_speaks_the_first_language_of_the_browser_that_there_is(accepted, locale):
    assert chosen_locale(accepted) == locale


async def test_a_catalogue_is_served_to_the_page_that_is_in_its_language(built, jp_fetch):
    answer = await jp_fetch("megalens/", headers={"Accept-Language": "zh-CN"})
    text = answer.body.decode()
    assert '<html lang="zh-CN">' in text
    assert config_of(text)["megalens"]["locale"] == "zh_CN"
    catalogue = await jp_fetch("megalens", "static", "locale", "zh_CN")
    assert json.loads(catalogue.body)["Panel"] == ["面板"]
    for name in ("xx_XX", "..", "zh_CN%2F.."):
        with pytest.raises(HTTPClientError, match="404"):
            await jp_fetch("megalens", "static", "locale", name)


async def test_the_page_runs_its_own_code_alone_and_holds_no_token(built, jp_fetch, jp_serverapp):
    answer = await jp_fetch("megalens/")
    policy = answer.headers["Content-Security-Policy"]
    assert "frame-ancestors 'self'" in policy
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe-eval" not in policy
    text = answer.body.decode()
    assert jp_serverapp.identity_provider.token not in text
    assert not re.search(r"<script(?![^>]*(src=|application/json))|\son\w+=", text)


@pytest.mark.parametrize("path", ["megalens/", "megalens/view/some-run/overview"])
async def test_who_is_not_logged_in_is_sent_to_the_login(built, jp_fetch, jp_base_url, path):
    with pytest.raises(HTTPClientError) as refused:
        await jp_fetch(path, headers={"Authorization": ""}, follow_redirects=False)
    assert refused.value.code == 302
    assert refused.value.response.headers["Location"].startswith(f"{jp_base_url}login?next=")


async def test_files_are_those_of_the_page_and_of_extensions_with_views(built, jp_fetch):
    async def fetch(*path, **options):
        try:
            answer = await jp_fetch("megalens", "static", *path, **options)
        except HTTPClientError as error:
            return error.code, ""
        return answer.code, answer.body.decode()

    assert await fetch("page", "page.js") == (200, "start();")
    assert await fetch("extensions", "@lab", "norms", "static", "entry.js") == (200, "// @lab/norms")
    for path in (
        ("page", "..", "page_handler.py"),
        ("page", "%2e%2e%2fpage_handler.py"),
        ("extensions", "other", "static", "entry.js"),
        ("extensions", "megalens", "%2e%2e", "other", "static", "entry.js"),
        ("extensions", "@lab", "..", "other", "static", "entry.js"),
    ):
        assert (await fetch(*path))[0] in (403, 404), path


async def test_a_page_that_was_not_built_says_what_to_run(built, jp_fetch, monkeypatch, tmp_path):
    monkeypatch.setattr(page_handler, "_BUILT", tmp_path / "nowhere")
    with pytest.raises(HTTPClientError) as missing:
        await jp_fetch("megalens/")
    assert missing.value.code == 404
    assert "make setup" in missing.value.response.body.decode()


@pytest.fixture
def show(tmp_path, runtime):
    """Start ``megalens show`` and return its process and its first line."""
    processes = []

    def start(*arguments, **environment):
        runtime.mkdir(mode=0o700, exist_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-m", "megalens", "show", "--no-browser", *arguments],
            cwd=tmp_path,
            env={
                **{name: value for name, value in os.environ.items() if name != "SSH_CONNECTION"},
                "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
                "JUPYTER_RUNTIME_DIR": str(tmp_path / "jupyter-runtime"),
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process, process.stdout.readline()

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def listed(address):
    """The runs that a shown server lists, asked with the token that it printed."""
    base, token = re.fullmatch(r"(http://127\.0\.0\.1:\d+/)megalens/\S*\?token=(\w+)", address).groups()
    with urlopen(f"{base}megalens/api/runs?token={token}") as answer:
        return [entry["id"] for entry in json.load(answer)["runs"]]


@pytest.mark.slow
def test_show_serves_a_recording_until_ctrl_c(show, tmp_path):
    folder = write_run(tmp_path / "elsewhere" / "20261120-101500-gpt-demo")
    process, line = show(str(folder), "--view", "timeline")
    address = re.fullmatch(r"Megalens is at (\S+) until Ctrl-C\.\n", line)[1]
    assert f"/megalens/view/{folder.name}/timeline?token=" in address
    assert folder.name in listed(address)
    with pytest.raises(OSError, match="404"):
        urlopen(address.replace(f"megalens/view/{folder.name}/timeline", "api/kernels"))
    process.send_signal(signal.SIGINT)
    assert process.communicate() == ("", "")
    assert process.returncode == 0


@pytest.mark.slow
def test_show_says_its_address_as_json_where_that_is_asked_for(show, tmp_path):
    folder = write_run(tmp_path / "elsewhere" / "20261120-101500-gpt-demo")
    _, line = show(str(folder), "--json")
    told = json.loads(line)
    assert folder.name in listed(told["address"])
    assert told["forward"] is None


@pytest.mark.slow
def test_show_serves_files_of_other_loggers_and_says_how_to_tunnel(show, tmp_path):
    tree = write_tree(tmp_path / "logs" / "run-a")
    process, line = show(str(tree), SSH_CONNECTION="10.0.0.1 1 10.0.0.2 22", USER="me")
    address = line.split()[3]
    assert address.split("/view/")[1].split("?")[0] in listed(address)
    port = address.split(":")[2].split("/")[0]
    assert f"ssh -N -L {port}:127.0.0.1:{port} me@" in process.stdout.readline()


@pytest.mark.slow
def test_show_serves_a_live_run_by_its_name(show, runtime):
    live = LiveRun(runtime).announce()
    try:
        _, line = show(live.id)
        address = line.split()[3]
        assert f"/megalens/view/{live.id}?token=" in address
        assert live.id in listed(address)
    finally:
        live.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["no-such-run"], "no-such-run"), (["--view", "timeline"], "--view needs a run")],
)
def test_show_says_in_a_sentence_what_it_cannot_show(show, arguments, words):
    process, line = show(*arguments)
    out, err = process.communicate()
    assert (line, out, process.returncode) == ("", "", 2)
    assert err.startswith("megalens show: ")
    assert words in err
    assert len(err.splitlines()) == 1
