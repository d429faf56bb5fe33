"""The HTML report: readable without its script, live with it, and nothing in it asks for anything from anywhere."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Sequence
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .code import to_code
from .errors import ReportError
from .facts import Facts
from .live import live_view, payload
from .picture import Frame, Picture
from .theme import PAGE_DARK, PAGE_LIGHT
from .words import date_text, integer_text

__all__ = ["MOST_BYTES", "build_page", "runtime_script"]

MOST_BYTES = 2_000_000
"""What a page with four views takes at most; the steps that heatmaps hold are chosen to stay below."""

_HERE = Path(__file__).parent
_SPARE = 40_000


def runtime_script() -> str:
    """Return the script that makes the charts live.

    Raises
    ------
    ReportError
        When this installation lacks it.
    """
    path = _HERE / "runtime" / "report-runtime.js"
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise ReportError(
            "This installation lacks the report's script. Reinstall megalens; in a checkout run: npm run build:bundles"
        ) from None


def build_page(
    facts: Facts,
    pictures: Sequence[Picture],
    title: str,
    *,
    progress: Callable[[int, int, str], object] | None = None,
) -> str:
    """Return the page.

    Parameters
    ----------
    facts : Facts
        What is said of the run.
    pictures : sequence of Picture
        The views, in order.
    title : str
        Title of the page.
    progress : callable, optional
        Called with (done, total, what comes next); raise from it to cancel.
    """
    script = runtime_script()
    stills: list[str] = []
    views: list[dict[str, object]] = []
    for place, picture in enumerate(pictures):
        if progress:
            progress(place, len(pictures), f"Drawing {picture.title}")
        stills.append(_still(picture))
        views.append({} if picture.empty else live_view(picture, f"view-{place}", []))
    spent = len(script) + len(payload(views)) + sum(len(still.encode()) for still in stills) + _SPARE
    frames = _fitting(pictures, MOST_BYTES - spent)
    live = [
        live_view(picture, f"view-{place}", frames[place])
        for place, picture in enumerate(pictures)
        if not picture.empty
    ]
    figures = "".join(
        _figure(picture, f"view-{place}", stills[place], frames[place])
        for place, picture in enumerate(pictures)
    )
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    made = f"Made {date_text(time.time())} with Megalens {_version()}."
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="Megalens {_version()}">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
<header>
<h1>{escape(title)}</h1>
<p>Run {escape(facts.name)}, <code>{escape(facts.id)}</code>. {made}</p>
</header>
<dl class="facts">{"".join(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in facts.facts)}</dl>
{figures}
{_traced(facts)}{_changes(facts)}
<footer>{made} This page holds all that it shows: it asks nothing of a network or a kernel. Values in the tooltips of heatmaps
have three digits.</footer>
</main>
<script type="application/json" id="megalens-data">{payload(live)}</script>
<script>{script}</script>
</body>
</html>
"""


def _fitting(pictures: Sequence[Picture], room: int) -> list[Sequence[Frame]]:
    """Choose the steps of every heatmap that fit into the page; the one that is drawn always does."""
    drawn = [picture for picture in pictures if picture.frames]
    share = room // max(1, len(drawn))
    chosen: list[Sequence[Frame]] = []
    for picture in pictures:
        frames = list(picture.frames)
        if frames and not picture.empty:
            count = max(1, min(len(frames), share // max(1, max(frame.page_bytes for frame in frames))))
            chosen.append(_spread(frames, count, _step(picture)))
        else:
            chosen.append([])
    return chosen


def _spread(frames: Sequence[Frame], count: int, step: int) -> list[Frame]:
    """Return ``count`` frames, spread evenly, with the one at ``step`` among them."""
    at = next(place for place, frame in enumerate(frames) if frame.step == step)
    if count >= len(frames):
        return list(frames)
    if count == 1:
        return [frames[at]]
    places = sorted({round(n * (len(frames) - 1) / (count - 1)) for n in range(count)})
    if at not in places:
        places[min(range(len(places)), key=lambda n: abs(places[n] - at))] = at
    return [frames[place] for place in sorted(set(places))]


def _step(picture: Picture) -> int:
    wanted = picture.options["step"]
    steps = [frame.step for frame in picture.frames]
    return steps[-1] if wanted is None else min(steps, key=lambda step: abs(step - int(wanted)))


def _still(picture: Picture) -> str:
    if picture.empty:
        return f'<p class="nothing">{escape(" ".join(picture.caption))}</p>'
    light = picture.svg(PAGE_LIGHT, title=False)
    if picture.template != "trend-lines":
        return f'<div class="picture" role="img" aria-label="{escape(picture.summary)}">{light}</div>'
    # Ordered colours are mixed between stops, so that they cannot follow the page by themselves.
    dark = picture.svg(PAGE_DARK, title=False)
    return (
        f'<div class="picture" role="img" aria-label="{escape(picture.summary)}">'
        f'<div class="on-light">{light}</div><div class="on-dark">{dark}</div></div>'
    )


def _figure(picture: Picture, name: str, still: str, frames: Sequence[Frame]) -> str:
    title = escape(picture.title)
    step = ""
    lines = [] if picture.empty else list(picture.caption)
    if frames:
        step = f' data-step="{_step(picture)}"'
        words = f"step {integer_text(_step(picture))}"
        title = title.replace(escape(words), f'<span class="step-words">{escape(words)}</span>')
        if len(picture.steps) > len(frames):
            held = _step_words(frames)
            lines.append(
                f"This page holds {held}, {len(frames)} of {integer_text(len(picture.steps))} traced steps; "
                "the others were left out."
            )
    caption = f'<p class="caption">{escape(" ".join(lines))}</p>' if lines else ""
    summary = f'<p class="summary">{escape(picture.summary)}</p>' if picture.summary else ""
    code = f"<details><summary>Code of this view</summary><code>{escape(to_code(picture.options))}</code></details>"
    return f'<figure id="{name}"{step}><figcaption><h2>{title}</h2></figcaption>{still}{caption}{summary}{code}</figure>\n'


def _step_words(frames: Sequence[Frame]) -> str:
    steps = [integer_text(frame.step) for frame in frames]
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {', '.join(steps[:-1])} and {steps[-1]}"


def _traced(facts: Facts) -> str:
    if not facts.traced:
        return ""
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in facts.traced
    )
    head = "<tr><th>Trace point</th><th>Layers</th><th>Compressor</th><th>Steps</th></tr>"
    return f'<section><h2>What was traced</h2><div class="wide"><table>{head}{rows}</table></div></section>\n'


def _changes(facts: Facts) -> str:
    if not facts.changes and not facts.events:
        return ""
    rows = "".join(f"<tr><td>{escape(step)}</td><td>{escape(text)}</td></tr>" for step, text in facts.changes)
    table = f"<table><tr><th>From step</th><th>Change</th></tr>{rows}</table>" if rows else ""
    events = f'<p class="caption">Also: {escape(facts.events)}.</p>' if facts.events else ""
    return f"<section><h2>Changes during the run</h2>{table}{events}</section>\n"


def _version() -> str:
    try:
        return version("megalens")
    except PackageNotFoundError:
        return "(checkout)"
