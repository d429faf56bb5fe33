"""The page ``/megalens/``: the extension without JupyterLab around it, behind the same login."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_path
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import JupyterHandler
from tornado.web import HTTPError, StaticFileHandler, authenticated

from ..protocol import parse_json
from ..runs.languages import LOCALES, chosen_locale, locales

_BUILT = Path(__file__).with_name("page")
_OWN = "megalens"
# Its own code and data alone; views and JupyterLab's parts write their styles into the page.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "worker-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
    )
)
_PAGE = """<!DOCTYPE html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="same-origin">
<title>Megalens</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{files}/page.css?v={stamp}">
</head>
<body>
<header class="jp-MegalensPage-head">
<button type="button" id="panel" aria-pressed="false">Panel</button>
<h1>Megalens</h1>
<label for="theme">Theme</label>
<select id="theme">
<option value="system">System</option><option value="light">Light</option><option value="dark">Dark</option>
</select>
</header>
<p id="fault" role="alert" hidden></p>
<noscript><p>This page draws its views by a script, which this browser does not run.</p></noscript>
<main id="work"></main>
<div id="toasts"></div>
<script type="application/json" id="jupyter-config-data">{config}</script>
<script src="{files}/page.js?v={stamp}"></script>
</body>
</html>
"""


class PageHandler(JupyterHandler):
    """``megalens/`` with the panel, ``megalens/view/RUN/VIEW`` with one view."""

    auth_resource = "megalens"

    @property
    def content_security_policy(self) -> str:
        # Beside what Jupyter's own pages have, which the administrator may set.
        return f"{super().content_security_policy}, {_POLICY}"

    @authenticated
    @authorized
    def get(self, run: str | None = None, view: str | None = None) -> None:
        """Answer the page; whether there is such a run or view it says itself."""
        if not (_BUILT / "page.js").is_file():
            raise HTTPError(404, reason="The page is not built: run make setup")
        # The token that the page's requests bear is a cookie, which is set where somebody asks for it.
        _ = self.xsrf_token
        locale = chosen_locale(self.request.headers.get("Accept-Language", ""))
        config = {
            "baseUrl": self.base_url,
            "hubPrefix": self.settings.get("hub_prefix", ""),
            "hubHost": self.settings.get("hub_host", ""),
            "megalens": {
                "extensions": [entry for entry, _ in _extensions().values()],
                "run": run or "",
                "view": view or "",
                "locale": locale,
            },
        }
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.finish(
            _PAGE.format(
                language=locale.replace("_", "-") or "en",
                files=escape(f"{self.base_url}megalens/static/page"),
                stamp=_stamp(),
                config=json.dumps(config).replace("<", "\\u003c"),
            )
        )


class PageFilesHandler(JupyterHandler, StaticFileHandler):
    """``megalens/static/page/FILE``, ``…/extensions/NAME/FILE`` and ``…/locale/NAME``: built files alone."""

    auth_resource = "megalens"

    def initialize(self) -> None:  # type: ignore[override]
        super().initialize(path=str(_BUILT))

    @authenticated
    @authorized
    def get(self, path: str, include_body: bool = True) -> Awaitable[None]:  # type: ignore[override]
        """Answer one file."""
        kind, *parts = path.split("/")
        if kind == "extensions":
            of_name = 2 if path.startswith("extensions/@") else 1
            found = _extensions().get("/".join(parts[:of_name]))
            if found is None:
                raise HTTPError(404, "There is no such extension.")
            self.root, parts = str(found[1]), parts[of_name:]
        elif kind == "locale" and parts[0] in locales():
            self.root, parts = str(LOCALES), [parts[0], "LC_MESSAGES", "megalens.json"]
        elif kind != "page":
            raise HTTPError(404)
        answer: Awaitable[None] = StaticFileHandler.get(self, "/".join(parts), include_body)
        return answer

    def head(self, path: str) -> Awaitable[None]:
        """Answer as for ``get``, without the file."""
        answer = StaticFileHandler.head(self, path)
        return answer


def _extensions() -> dict[str, tuple[dict[str, Any], Path]]:
    """Return what to load of each extension that may have views, and its folder; our own is the first."""
    found: dict[str, tuple[dict[str, Any], Path]] = {}
    for folder in map(Path, jupyter_path("labextensions")):
        for file in (*folder.glob("[!@]*/package.json"), *folder.glob("@*/*/package.json")):
            try:
                package = parse_json(file.read_text())
                name, build = package["name"], package["jupyterlab"]["_build"]
                if name not in found and (name == _OWN or _OWN in package.get("dependencies", {})):
                    entry = {key: build[key] for key in ("load", "extension", "style") if key in build}
                    found[name] = ({"name": name, **entry}, file.parent.resolve())
            except (OSError, ValueError, KeyError, TypeError):
                # It is for JupyterLab to complain.
                continue
    return dict(sorted(found.items(), key=lambda each: each[0] != _OWN)) if _OWN in found else {}


@cache
def _stamp() -> str:
    """Return what changes with the built page: the browser keeps it until then."""
    return sha256((_BUILT / "page.js").read_bytes() + (_BUILT / "page.css").read_bytes()).hexdigest()[:16]
