"""The same question to each of many runs, here or on an engine: the unit of work is a run."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from typing import Any

from ..protocol import MegalensError, shown_text
from .dask_engine import DaskEngine
from .errors import ClientError, bad_argument
from .opening import open_run, run_folders
from .storage import is_address

__all__ = ["Paths", "ask_all", "ask_each"]

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
RunProgress = Callable[[int, int, str], object]

_OF_ALL = frozenset(("disconnected", "version-mismatch", "cancelled"))
"""What is wrong with the engine, and so with every run."""


def ask_all(
    paths: Paths, ask: Callable[[Any], Any], *, engine: Any = None, progress: RunProgress | None = None
) -> dict[str, Any]:
    """Ask each of many runs the same, and return the answers by path, in order.

    Parameters
    ----------
    paths : str, path or sequence of them
        A folder of runs, or a pattern such as ``runs/*/``, of which each is asked; or a sequence of what
        :func:`open` takes, where a pattern is one job.
    ask : callable
        Called with each run, which is open until it returns, as :func:`open` gives it, without views:
        ``lambda run: run.alarms(rule="jump")``.
    engine : dask.distributed.Client or str, optional
        As in :func:`open`: a task for each run, in which ``ask`` and its answer are pickled.
    progress : callable, optional
        Called with (runs done, runs in all, the next one's path); raise from it to cancel.

    Raises
    ------
    ClientError
        Naming the run, for the first one that cannot be read or of which ``ask`` fails; nothing is answered
        then.
    """
    found: dict[str, Any] = {}
    for path, answer in ask_each(paths, ask, engine=engine, progress=progress):
        if isinstance(answer, ClientError):
            raise answer
        found[path] = answer
    return found


def ask_each(
    paths: Paths,
    ask: Callable[..., Any],
    *given: Any,
    engine: Any = None,
    progress: RunProgress | None = None,
) -> Iterator[tuple[str, Any]]:
    """Yield each run's path with what ``ask(run, *given)`` returned, or the ``ClientError`` that names it.

    Raises ``ClientError`` for what is wrong with all of them, such as an engine that is gone.
    """
    chosen = _chosen(paths)
    with nullcontext() if engine is None else closing(DaskEngine(engine)) as there:
        answers = _here(chosen, ask, given) if there is None else _there(there, chosen, ask, given)
        for at, path in enumerate(chosen):
            if progress is not None:
                progress(at, len(chosen), path)
            yield path, next(answers)
        if progress is not None:
            progress(len(chosen), len(chosen), "")


def _chosen(paths: Paths) -> list[str]:
    if isinstance(paths, str | os.PathLike):
        return [str(folder) for folder in run_folders(paths)] or [os.fspath(paths)]
    if not isinstance(paths, Iterable):
        raise bad_argument("paths", "a folder of runs, a pattern, or a sequence of paths", paths)
    return list(dict.fromkeys(os.fspath(path) for path in paths))


def _here(chosen: Sequence[str], ask: Callable[..., Any], given: tuple[Any, ...]) -> Iterator[Any]:
    for path in chosen:
        yield _asked(path, path, ask, given)


def _there(
    engine: DaskEngine, chosen: Sequence[str], ask: Callable[..., Any], given: tuple[Any, ...]
) -> Iterator[Any]:
    # Workers may run elsewhere on the same disk.
    items = [(path if is_address(path) else os.path.abspath(path), path) for path in chosen]
    futures = deque(engine.submit(_asked, items, ask, given))
    try:
        for path in chosen:
            try:
                found = engine.result(futures[0])
            except ClientError as error:
                if error.code in _OF_ALL:
                    raise
                found = _named(path, error)
            except Exception as error:
                found = _failed(path, error)
            # A worker may forget what has arrived here.
            futures.popleft()
            yield found
    finally:
        engine.cancel(list(futures))


def _asked(path: str, called: str, ask: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    """Return the answer of a run, or the error that names it as whoever asks has called it."""
    try:
        with open_run(path) as run:
            return ask(run, *given)
    except MegalensError as error:
        return _named(called, error)
    except Exception as error:
        return _failed(called, error)


def _named(path: str, error: MegalensError) -> ClientError:
    code, field = getattr(error, "code", "unreadable"), getattr(error, "field", None)
    return ClientError(f"{shown_text(path, 300)}: {error}", code=code, field=field)


def _failed(path: str, error: Exception) -> ClientError:
    what = shown_text(f"{type(error).__name__}: {error}", 500)
    return ClientError(f"{shown_text(path, 300)} could not be asked: {what}", code="unreadable")
