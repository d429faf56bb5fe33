"""The views of a report, checked before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...protocol import VIEW_NAMES, ProtocolError, check_view_options, view_about
from ...runs import Run
from ...runs.run_words import unknown_flag
from .errors import ReportError

__all__ = ["check_views"]


def check_views(run: Run, views: Any) -> list[dict[str, Any]]:
    """Return the views with every default filled in: of options objects, or of what holds them as ``options``, as widgets do.

    Raises
    ------
    ReportError
        Naming the view (``views[1]``) and the field at fault.
    """
    if isinstance(views, Mapping | str) or not hasattr(views, "__iter__"):
        raise ReportError(
            f"views must be a list of views, such as [run.heatmap(…), run.trend(…)], got {views!r:.100}.",
            field="views",
        )
    return [_check_view(run, options, f"views[{place}]") for place, options in enumerate(views)]


def _check_view(run: Run, options: Any, where: str) -> dict[str, Any]:
    given = options
    options = {"view": given} if isinstance(given, str) else getattr(given, "options", given)
    if not isinstance(options, Mapping):
        raise ReportError(
            f"{where} must be a widget such as run.heatmap(…), a view's name, or a dict with view in it, got {given!r:.100}.",
            view=where,
            field=where,
        )
    view = options.get("view") if isinstance(options, Mapping) else None
    if isinstance(view, str) and view not in VIEW_NAMES:
        message = f"{where}: view must be one of {', '.join(VIEW_NAMES)}, got {view!r:.100}. A view of another package is drawn in JupyterLab only."
        raise ReportError(message, view=where, field=f"{where}.view")
    try:
        checked = check_view_options(options, where)
    except ProtocolError as error:
        more = f" Write run.{view_about(given)['method']}(…) in its place." if isinstance(given, str) else ""
        raise ReportError(f"{where}: {error.message}{more}", view=where, field=error.field) from error
    flag = checked.get("flag")
    if flag is not None and run.flags and flag not in run.flags:
        message = f"{where}: {unknown_flag(flag, run.flags)}"
        raise ReportError(message, view=where, field=f"{where}.flag")
    return checked
