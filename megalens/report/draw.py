"""From options to a picture, whichever view it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ..client import ClientError, Run
from ..client.other_runs import Others, beside, kept_open, nobody
from ..protocol import ProtocolError, check_view_options
from .captions import origin_words
from .errors import ReportError
from .heatmap import heatmap_picture
from .history import history_pictures
from .moments import moments_pictures
from .picture import Picture
from .scalars import scalars_picture
from .trend import trend_picture

__all__ = ["check_view", "check_views", "draw_picture", "make_picture", "make_pictures"]


def check_views(run: Run, views: Any) -> list[dict[str, Any]]:
    """Return the views with every default filled in.

    Raises
    ------
    ReportError
        Naming the view (``views[1]``) and the field at fault.
    """
    if isinstance(views, Mapping | str) or not hasattr(views, "__iter__"):
        raise ReportError(f"views must be a list of views, and {views!r:.100} came.", field="views")
    return [check_view(run, options, f"views[{place}]") for place, options in enumerate(views)]


def check_view(run: Run, options: Any, where: str) -> dict[str, Any]:
    """Return the options of one view with every default filled in; ``where`` names it in an error."""
    try:
        checked = check_view_options(options, where)
    except ProtocolError as error:
        raise ReportError(f"{where}: {error.message}", view=where, field=error.field) from error
    flag = checked.get("flag")
    if flag is not None and run.flags and flag not in run.flags:
        known = ", ".join(run.flags)
        message = f"{where}: this run has no flag {flag!r:.100}. It has {known}."
        raise ReportError(message, view=where, field=f"{where}.flag")
    return checked


def make_pictures(
    run: Run,
    options: Mapping[str, Any],
    where: str = "view",
    *,
    room: int = 0,
    others: Others = nobody,
    progress: Callable[[float], object] | None = None,
) -> list[Picture]:
    """Read and shape what one view shows: one picture, of a history and of the explorer's overview two. As :func:`make_picture`; ``others`` opens the runs
    that the view compares with.
    """
    if options["view"] not in ("history", "moments"):
        return [make_picture(run, options, where, room=room, progress=progress)]
    with _naming(where):
        pictures = (
            history_pictures(run, options, room=room, progress=progress)
            if options["view"] == "history"
            else moments_pictures(run, options, others=others, progress=progress)
        )
    return [replace(each, caption=[*origin_words(run.origin), *each.caption]) for each in pictures]


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Name the view in what the client refuses."""
    try:
        yield
    except ClientError as error:
        raise ReportError(
            f"{where}: {error.message}", view=where, field=f"{where}.{error.field or 'view'}"
        ) from error


def make_picture(
    run: Run,
    options: Mapping[str, Any],
    where: str = "view",
    *,
    room: int = 0,
    progress: Callable[[float], object] | None = None,
) -> Picture:
    """Read and shape what one view shows. ``options`` are checked; ``where`` names the view in an error; ``room`` is
    how many bytes of page a heatmap's other steps may take.
    """
    with _naming(where):
        if options["view"] == "heatmap":
            picture = heatmap_picture(run, options, room=room)
        elif options["view"] == "trend":
            picture = trend_picture(run, options, progress=progress)
        else:
            picture = scalars_picture(run, options)
        return replace(picture, caption=[*origin_words(run.origin), *picture.caption])


def draw_picture(run: Run, options: Mapping[str, Any]) -> tuple[str, str]:
    """Draw a view for a cell: SVG text and a caption of one line. Where there is nothing to draw, the SVG is empty and the caption says why.

    A cell must display whatever happens, so this raises nothing that a run or an option can cause.
    """
    try:
        with kept_open(beside(run)) as others:
            pictures = make_pictures(run, check_view(run, options, "view"), others=others)
        caption = " ".join(line for each in pictures for line in (f"{each.title}.", *each.caption))
        return "".join(each.svg(title=False) for each in pictures if not each.empty), caption
    except ReportError as error:
        return "", error.message
