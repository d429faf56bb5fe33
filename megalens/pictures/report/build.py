"""From a run and a list of views to a file, whose text the engine's job ``report`` makes in TypeScript."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...protocol import (
    VIEW_NAMES,
    MegalensError,
    ProtocolError,
    check_view_options,
    view_about,
    view_named,
)
from ...protocol.version import own_version
from ...runs import Run, RunFolder
from ...runs.answers import rows_of
from ...runs.languages import chosen_locale, locales, words_of
from ...runs.opening import Others, compared_answers
from ...runs.run_words import unknown_flag
from ..engine import EngineError, run_job

Progress = Callable[[int, int, str], object]


class ReportError(MegalensError, ValueError):
    """A report cannot be made as it was asked for.

    Parameters
    ----------
    message : str
        What was expected, what came, what to try.
    view : str, optional
        Which view is at fault, such as ``views[1]``.
    field : str, optional
        Dotted path of the option at fault, such as ``views[1].statistic``.
    """

    def __init__(self, message: str, *, view: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.view = view
        self.field = field


"""Called with (done, total, what comes next). Whatever it raises ends the report, and nothing is written."""

_COLUMNS = ["flag", "step", "layer", "compressor"]


# What was traced of a run, counted: values are most of a recording, and are not read for it.
def traced_flags(run: Run) -> list[dict[str, Any]]:
    """Return ``flag``, ``compressor``, ``first``, ``last``, ``steps`` (count), ``layers`` of all flags."""
    source = rows_of(run)
    schema = source.streams["tensors"].schema
    table = pa.Table.from_batches(
        source.batches("tensors", None, _COLUMNS), pa.schema([schema.field(name) for name in _COLUMNS])
    )
    grouped = table.group_by(["flag", "compressor"]).aggregate(
        [("step", "min"), ("step", "max"), ("step", "count_distinct"), ("layer", "distinct")]
    )
    names = {
        "step_min": "first",
        "step_max": "last",
        "step_count_distinct": "steps",
        "layer_distinct": "layers",
    }
    renamed = grouped.rename_columns([names.get(name, name) for name in grouped.column_names])
    rows: list[dict[str, Any]] = renamed.sort_by([("flag", "ascending"), ("first", "ascending")]).to_pylist()
    return rows


def check_views(run: Run, views: Any) -> list[dict[str, Any]]:
    """Return views, options objects or widgets, with every default filled in.

    Raises ``ReportError`` naming the view (``views[1]``) and the field at fault.
    """
    if isinstance(views, Mapping | str) or not hasattr(views, "__iter__"):
        raise ReportError(
            f"views must be a list of views, such as [run.heatmap(…), run.trend(…)], got {views!r:.100}.",
            field="views",
        )
    return [_check_view(run, options, f"views[{index}]") for index, options in enumerate(views)]


def _check_view(run: Run, options: Any, where: str) -> dict[str, Any]:
    given = options
    options = {"view": given} if isinstance(given, str) else getattr(given, "options", given)
    if not isinstance(options, Mapping):
        raise ReportError(
            f"{where} must be a widget such as run.heatmap(…), a view's name, or a dict with view in it, "
            f"got {given!r:.100}.",
            view=where,
            field=where,
        )
    view = options.get("view")
    if isinstance(view, str):
        options = _with_flag(run, {**options, "view": (view := view_named(view))})
    if isinstance(view, str) and view not in VIEW_NAMES:
        message = (
            f"{where}: view must be one of {', '.join(VIEW_NAMES)}, got {view!r:.100}. A view of another "
            "package is drawn in JupyterLab only."
        )
        raise ReportError(message, view=where, field=f"{where}.view")
    try:
        checked = check_view_options(options, where)
    except ProtocolError as error:
        more = (
            f" Write run.{view_about(str(view))['method']}(…) in its place." if isinstance(given, str) else ""
        )
        raise ReportError(f"{where}: {error.message}{more}", view=where, field=error.field) from error
    flag = checked.get("flag")
    if flag is not None and run.flags and flag not in run.flags:
        message = f"{where}: {unknown_flag(flag, run.flags)}"
        raise ReportError(message, view=where, field=f"{where}.flag")
    return checked


def _with_flag(run: Run, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return options of a view of one flag, where they name none with the first traced as it needs it."""
    view = options["view"]
    if "flag" in options or view not in VIEW_NAMES or not view_about(view)["needs"]["flag"]:
        return options
    rows, compressor = traced_flags(run), view_about(view)["needs"].get("compressor")
    fits = [row for row in rows if compressor and row["compressor"].startswith(f"{compressor}(")]
    traced = {row["flag"] for row in fits or rows}
    first = next((flag for flag in run.flags if flag in traced), None)
    return options if first is None else {**options, "flag": first}


_FORMATS = ("html", "ipynb", "md")
_PARTS = Path(__file__).parent / "runtime" / "report-page.json"
# Seconds that V8 may take for one report.
_TIMEOUT = 600.0
_SETTLE_LOOKS, _SETTLE_SECONDS = 10, 0.15


def build_report(
    run: Run,
    views: Sequence[Any] | None = None,
    *,
    title: str | None = None,
    format: str = "html",
    folder: str | None = None,
    others: Others | None = None,
    language: str = "en",
    progress: Progress | None = None,
) -> bytes:
    """Freeze views of a run, and return the file as UTF-8 bytes.

    Parameters
    ----------
    run : Run
        Live or recorded. A live one is frozen as it is now, with its recording where this machine has that.
    views : sequence, optional
        Options objects, each with ``view``, or widgets; when absent scalars and statistics where there are
        some, and trend and heatmap of the first traced flag.
    title : str, optional
        Title; the run's name when absent.
    format : {"html", "ipynb", "md"}
        A page that draws without kernel and network, a notebook with the views' own code, or what happened in
        words and numbers.
    folder : str, optional
        Run folder in a notebook report, relative to the notebook; ``megalens-runs/<folder>`` when absent.
    others : callable, optional
        Opens a run that a view compares with by its id, or returns None; it is closed here. When absent: the
        neighbouring recordings.
    language : str, optional
        ``"en"`` or one that there is a translation into, such as ``"zh-CN"``. What the run, its tracer and
        its code say stays as it is.
    progress : callable, optional
        See :data:`Progress`.

    Raises
    ------
    ReportError
        Naming the view and the field at fault.
    """
    check_format(format)
    if title is not None and not isinstance(title, str):
        raise ReportError(f"title must be text, got {title!r:.50}.", field="title")
    locale = _locale_of(language)
    _settle(run)
    args = {
        "run": run.id,
        "views": None if views is None else check_views(run, views),
        "title": title,
        "format": format,
        "folder": None if run.live or run.folder is None else folder or f"megalens-runs/{run.folder.name}",
        "made": time.time(),
        "version": own_version(),
        "traced": traced_flags(run),
        "language": locale.replace("_", "-") or "en",
        "words": words_of(locale),
        "parts": _parts() if format == "html" else None,
    }
    with compared_answers(run, others, _settle) as answers:
        try:
            _, text = run_job("report", args, answers, progress=progress, timeout=_TIMEOUT)
        except EngineError as error:
            raise ReportError(error.message, field=error.field) from error
    return text


def check_format(format: str) -> None:
    if format not in _FORMATS:
        raise ReportError(f"format must be html, ipynb or md, got {format!r:.50}.", field="format")


def _locale_of(language: Any) -> str:
    locale = chosen_locale(language) if isinstance(language, str) else ""
    if locale == "" and language != "en":
        there = ", ".join(("en", *(each.replace("_", "-") for each in locales())))
        raise ReportError(f"language must be one of {there}, got {language!r:.50}.", field="language")
    return locale


def write_report(
    run: Run,
    path: str | os.PathLike[str],
    views: Sequence[Any] | None = None,
    title: str | None = None,
    *,
    language: str = "en",
    progress: Progress | None = None,
) -> Path:
    """Freeze views of a run into a file, atomically, as :func:`build_report`; return its path.

    Raises ``ReportError`` for an ending other than ``.html``, ``.ipynb`` and ``.md``, an unwritable folder,
    or a wrong view.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ReportError(f"path must be the name of a file, got {path!r:.100}.", field="path")
    target = Path(path).expanduser()
    kind = target.suffix.removeprefix(".").lower()
    if kind not in _FORMATS:
        raise ReportError(
            f"A report's name must end in .html, .ipynb or .md, got {target.name!r:.100}.", field="path"
        )
    if not target.parent.is_dir():
        raise ReportError(
            f"There is no folder {target.parent.name!r:.100} to write {target.name} into. Make it first.",
            field="path",
        )
    data = build_report(
        run,
        views,
        title=title,
        format=kind,
        folder=_relative(run, target),
        language=language,
        progress=progress,
    )
    write_file(target, data)
    return target


def write_file(target: Path, data: bytes) -> None:
    """Write a report atomically; raises ``ReportError``."""
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(target)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        reason = error.strerror or str(error)
        raise ReportError(
            f"Could not write {target.name}: {reason}. Choose a folder that exists and can be written.",
            field="path",
        ) from error


def _umask() -> int:
    """Return the mode bits that new files of this process do not get; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _settle(run: Run) -> None:
    """Wait for a hub's backlog where that is what is read: a fresh connection has nothing yet."""
    if isinstance(rows_of(run), RunFolder):
        return
    seen = -1
    for _ in range(_SETTLE_LOOKS if run.live else 0):
        run.moment_source.refresh()
        moments = sum(each["rows"] for each in run.moment_source.index()["stats"])
        before, seen = seen, run.tensors().num_rows + run.scalars().num_rows + moments
        if seen == before and seen > 0:
            return
        time.sleep(_SETTLE_SECONDS)


def _relative(run: Run, target: Path) -> str | None:
    if run.folder is None:
        return None
    folder, here = run.folder.resolve(), target.parent.resolve()
    return (
        folder.relative_to(here).as_posix()
        if folder.is_relative_to(here) and here != Path(here.anchor)
        else None
    )


@cache
def _parts() -> Any:
    """Return the script and the styles of a page, as ``scripts/build-bundles.mjs`` made them."""
    try:
        return json.loads(_PARTS.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReportError(
            "This installation lacks the report's script. Reinstall megalens; in a checkout run: npm run "
            "build:bundles"
        ) from None
