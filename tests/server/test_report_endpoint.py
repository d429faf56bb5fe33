"""Reports made by the server."""

import json

import pytest
from explored_run import write_explored_run

pytestmark = pytest.mark.slow

RUN = "20261120-101500-gpt-demo"
TREND = {"view": "trend", "flag": "MLP1_mat_mul"}


@pytest.mark.parametrize(
    ("kind", "content_type", "start"),
    [("html", "text/html; charset=utf-8", b"<!"), ("ipynb", "application/x-ipynb+json", b"{")],
)
async def test_a_report_is_an_attachment_named_after_the_run(ask, run_folder, kind, content_type, start):
    body = {"format": kind, "views": [{"view": "scalars"}], "title": "Mine"}
    status, content, headers = await ask("runs", RUN, "report", body=body, request_timeout=60)
    assert status == 200
    assert headers["Content-Type"] == content_type
    assert "attachment" in headers["Content-Disposition"]
    assert f"gpt-demo.{kind}" in headers["Content-Disposition"]
    assert content.lstrip().startswith(start)
    assert b"Mine" in content


async def test_a_run_is_compared_with_others_that_the_server_knows(ask, run_folder, live):
    run = live()
    run.step(2)
    write_explored_run(run_folder.parent / "first", run={"id": "first", "name": "first", "started": 1.0})
    write_explored_run(run_folder.parent / "again", run={"id": "again", "name": "once more", "started": 2.0})
    view = {"view": "statistics", "kind": "lines", "by": [], "runs": ["again", "gone", run.id]}
    body = {"format": "html", "views": [view]}
    status, content, _ = await ask("runs", "first", "report", body=body, request_timeout=60)
    assert status == 200
    for words in (
        "first (this run): solid. once more: dashed.",
        "The run gone could not be opened here",
        "Nothing to compare in",
    ):
        assert words.encode() in content
    assert run.token.encode() not in content


async def test_a_live_run_is_frozen_as_it_is(ask, live):
    run = live()
    run.step(4)
    body = {"format": "html", "views": [{"view": "scalars"}]}
    status, content, _ = await ask("runs", run.id, "report", body=body, request_timeout=60)
    assert status == 200
    assert run.token.encode() not in content


@pytest.mark.parametrize(("language", "spoken"), [("zh_CN", b"zh-CN"), ("fr_FR", b"en")])
async def test_a_report_speaks_the_language_of_the_page_that_asks_for_it(ask, run_folder, language, spoken):
    body = {"format": "html", "views": [{"view": "scalars"}], "language": language}
    status, content, _ = await ask("runs", RUN, "report", body=body, request_timeout=60)
    assert status == 200
    assert b'<html lang="' + spoken + b'"' in content


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"format": "pdf", "views": [TREND]}, "format"),
        ({"format": {}, "views": [TREND]}, "format"),
        ({"format": "html"}, "views"),
        ({"format": "html", "views": []}, "views"),
        ({"format": "html", "views": [TREND], "title": 5}, "title"),
        ({"format": "html", "views": [TREND], "language": 5}, "language"),
        ({"format": "html", "views": [TREND], "path": "/etc"}, "path"),
        ({"format": "html", "views": [{"view": "none"}]}, "views[0].view"),
        ({"format": "html", "views": [TREND, {**TREND, "statistic": "mode"}]}, "views[1].statistic"),
    ],
)
async def test_what_is_wrong_with_a_report_is_named(ask, run_folder, body, field):
    status, answer, _ = await ask("runs", RUN, "report", body=json.dumps(body))
    assert (status, answer["code"], answer["field"]) == (400, "bad-parameter", field)
