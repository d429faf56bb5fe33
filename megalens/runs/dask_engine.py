"""Questions that are answered on a Dask cluster: what runs there, and what went wrong there in words.

Where tasks run, what is tried again and what is spilled to disk is Dask's. A question gives the whole answer
or raises ``ClientError``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import Any, TypeVar

from .._version import __version__
from .errors import ClientError, bad_argument

__all__ = ["Each", "DaskEngine", "each_on"]

Each = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""Python's ``map`` with one iterable, or what maps elsewhere."""

_PACKAGE = "megalens"
_LOOK_SECONDS = 0.2
_CONNECT_SECONDS = 10
_MOST_NAMED = 3
_WITHOUT = "open the run without engine=…, which reads it here"

Found = TypeVar("Found")


class DaskEngine:
    """A Dask cluster whose workers see the recordings at the same paths, and have this version of Megalens.

    Parameters
    ----------
    given : dask.distributed.Client or str
        A client, which stays open, or a scheduler's address such as ``tcp://host:8786``, which is connected
        to again once it was gone.
    without : str
        How errors say to read without it.

    Raises
    ------
    ClientError
        ``not-installed``; ``bad-parameter`` (``engine``); ``disconnected`` where no scheduler answers;
        ``version-mismatch`` where somebody on the cluster has no Megalens, or another version.
    """

    def __init__(self, given: Any, without: str = _WITHOUT) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise ClientError(
                "An engine needs Dask: pip install 'megalens[dask]'.", code="not-installed", field="engine"
            ) from error
        self._without = without
        self._lock = threading.Lock()
        self._given = given if isinstance(given, str) else None
        if self._given is not None:
            self._connect(self._given)
        elif not isinstance(given, Client) or given.asynchronous:
            raise bad_argument("engine", "a dask.distributed.Client or a scheduler's address", given)
        else:
            self._client: Any = given
            self._check_versions()

    @property
    def address(self) -> str:
        """The scheduler's address."""
        return str(self._client.scheduler.address)

    @property
    def workers(self) -> int:
        """How many workers there are now."""
        self._connected()
        try:
            with self._said():
                return len(self._client.nthreads())
        except (OSError, RuntimeError) as error:
            if isinstance(error, ClientError):
                raise
            raise self._gone(str(error)) from error

    def lent(self) -> DaskEngine:
        """Return the same connection for somebody whose ``close`` leaves it open."""
        self._connected()
        lent = copy(self)
        lent._given = None
        return lent

    def submit(
        self, function: Callable[..., Any], items: Sequence[tuple[Any, ...]], *shared: Any
    ) -> list[Any]:
        """Start a task for each tuple of arguments, which ``shared`` ones follow, and return their futures.

        A list in an argument may have futures, of which the task gets the results.
        """
        name = getattr(function, "func", function).__name__.strip("_").replace("_", "-")
        # Not as named arguments: large ones Dask keeps under their bare names, for all questions alike.
        run = partial(task, __version__, function, shared, self._without)
        self._connected()
        with self._said():
            futures: list[Any] = self._client.map(run, items, key=f"{_PACKAGE}-{name}", pure=False)
            return futures

    def result(
        self,
        future: Any,
        stop: threading.Event | None = None,
        looked: Callable[[], object] | None = None,
    ) -> Any:
        """Wait for a task's result, at most until ``stop`` is set; raises ClientError ``cancelled`` then.

        ``looked`` is called again and again meanwhile, and once it is there.
        """
        from distributed import TimeoutError as LateError
        from distributed import wait

        with self._said(), self._client.as_current():
            while not future.done():
                if stop is not None and stop.is_set():
                    raise ClientError("The question was given up.", code="cancelled")
                try:
                    wait([future], timeout=_LOOK_SECONDS)
                except LateError:
                    if self._client.status != "running":
                        raise
                if looked is not None:
                    looked()
            return future.result()

    def results(
        self,
        function: Callable[..., Found],
        items: Sequence[tuple[Any, ...]],
        stop: threading.Event | None,
        *shared: Any,
    ) -> Generator[Found, None, None]:
        """Yield the results of tasks in their order. Those that are left are given up when this is closed."""
        futures = self.submit(function, items, *shared)
        try:
            while futures:
                found = self.result(futures[0], stop)
                # A worker may forget what has arrived here.
                del futures[0]
                yield found
        finally:
            self.cancel(futures)

    def map(self, function: Callable[[Any], Found], items: Iterable[Any]) -> list[Found]:
        """As Python's own, where there are several; in order."""
        items = list(items)
        if len(items) < 2:
            return list(map(function, items))
        return list(self.results(function, [(item,) for item in items], None))

    def cancel(self, futures: Sequence[Any]) -> None:
        """Give tasks up, and all that only they need. Does not wait for those that run."""
        if futures and self._client.status == "running":
            self._client.cancel(list(futures), asynchronous=False, force=True)

    def close(self) -> None:
        """Close the connection, if it was made here. Safe twice."""
        if self._given is not None:
            self._client.close(timeout=_CONNECT_SECONDS)

    def _connected(self) -> None:
        """Connect anew where the scheduler was gone for so long that Dask has given it up; raises ClientError
        while it is gone.
        """
        with self._lock:
            if self._given is not None and self._client.status == "closed":
                self._connect(self._given)
        if self._client.status != "running":
            raise self._gone(f"the connection is {self._client.status}")

    def _connect(self, address: str) -> None:
        from distributed import Client
        from distributed import TimeoutError as LateError

        try:
            self._client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, LateError) as error:
            raise ClientError(
                f"No Dask scheduler answers at {address:.200}. Start one (dask scheduler) and give the "
                f"address that it prints, such as tcp://host:8786, or {self._without}.",
                code="disconnected",
                field="engine",
            ) from error
        try:
            self._check_versions()
        except BaseException:
            self.close()
            raise

    def _check_versions(self) -> None:
        with self._said():
            found = self._client.get_versions(packages=[_PACKAGE])
        own = found["client"]["packages"]
        there = {"the scheduler": found["scheduler"], **found["workers"]}
        for package in (_PACKAGE, "distributed"):
            of = {who: (each or {}).get("packages", {}).get(package) for who, each in there.items()}
            others = [
                f"{who} has {version or 'none'}" for who, version in of.items() if version != own[package]
            ]
            if others:
                more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
                raise _other_version(
                    f"{package} {own[package]} is here; {'; '.join(others[:_MOST_NAMED])}{more}",
                    package,
                    self._without,
                )

    def _gone(self, why: str) -> ClientError:
        return ClientError(
            f"The Dask scheduler at {self.address} is gone, or gave this question up ({why:.200}). "
            f"Ask again once it runs, name another one, or {self._without}.",
            code="disconnected",
            field="engine",
        )

    @contextmanager
    def _said(self) -> Iterator[None]:
        """Turn what goes wrong on a cluster into ``ClientError``."""
        from distributed import CancelledError, KilledWorker
        from distributed import TimeoutError as LateError
        from distributed.comm import CommClosedError

        try:
            yield
        except KilledWorker as error:
            raise ClientError(
                f"{1 + error.allowed_failures} workers ended, one after the other, at the same part of this "
                "question: mostly because they had too little memory, which their logs say. Give them more "
                f"memory or fewer threads, ask for fewer steps or groups, or {self._without}.",
                code="too-large",
                field="engine",
            ) from error
        except (CancelledError, CommClosedError, LateError) as error:
            raise self._gone(str(error)) from error
        except ModuleNotFoundError as error:
            raise _other_version(
                f"a worker or the scheduler lacks {error.name}", _PACKAGE, self._without
            ) from error


class QuestionTasks:
    """The tasks of one question on an engine; ``told`` hears how many of how many are done."""

    def __init__(self, engine: DaskEngine, told: Callable[[int, int], object]) -> None:
        self._engine, self._told = engine, told
        self._waiting: list[Any] = []
        self._of = 0

    @property
    def workers(self) -> int:
        return self._engine.workers

    def submit(self, *asked: Any) -> list[Any]:
        """As that of :class:`DaskEngine`."""
        futures = self._engine.submit(*asked)
        self._waiting += futures
        self._of += len(futures)
        return futures

    def result(self, future: Any, stop: threading.Event) -> Any:
        """As that of :class:`DaskEngine`."""
        self._look()
        return self._engine.result(future, stop, self._look)

    def cancel(self) -> None:
        """Give up those that are left."""
        left, self._waiting = [each for each in self._waiting if not each.done()], []
        self._engine.cancel(left)

    def _look(self) -> None:
        # A worker may forget what is done, unless a task or somebody here still asks for it.
        self._waiting = [each for each in self._waiting if not each.done()]
        self._told(self._of - len(self._waiting), self._of)


def each_on(engine: DaskEngine | None) -> Each:
    """Return what maps over files: on the engine, where there is one."""
    return map if engine is None else engine.map


def task(
    version: str,
    function: Callable[..., Found],
    shared: tuple[Any, ...],
    without: str,
    arguments: tuple[Any, ...],
) -> Found:
    """Run on a worker what is asked for by the same version."""
    if version != __version__:
        raise _other_version(f"{version} asks, and {_worker()} has {__version__}", _PACKAGE, without)
    try:
        return function(*arguments, *shared)
    except FileNotFoundError as error:
        raise ClientError(
            f"{_worker()} finds no {error.filename}. Recordings must lie at the same path on all machines of "
            f"the cluster, such as a shared disk; or {without}. If the file went just now, ask again.",
            code="unreadable",
            field="engine",
        ) from error


def _worker() -> str:
    from distributed import get_worker

    return f"the worker {get_worker().address}"


def _other_version(what: str, package: str, without: str) -> ClientError:
    return ClientError(
        f"Scheduler and workers must have the version of {package} that asks: {what}. Install the same "
        f"everywhere (pip install {package}==…) and start them again, or {without}.",
        code="version-mismatch",
        field="engine",
    )
