"""Runs tests in processes that fork from the one that collected them: ``pytest --forks 6``.

What tests import, torch with it, is imported once. The tests of a file go to one process, in their order, so that what they share is made once; the
files with slow tests go first. A process that ends in the middle of a test costs that test: another one forks for the rest.
"""

from __future__ import annotations

import collections
import multiprocessing
import os
import sys
import traceback
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

import pytest
import warm

__all__ = ["pytest_addoption", "pytest_runtestloop"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--forks", type=int, default=0, help="run tests in so many processes, forked from this one"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    option = session.config.option
    if option.forks < 1 or option.collectonly or session.testsfailed:
        return None
    if _starting(session):
        # Beside what tests import what their own processes need, before the first fork.
        warm.preload()
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    if "processes" in sys.modules:
        sys.modules["processes"].start_server()
    _Workers(session).run(option.forks)
    return True


def _starting(session: pytest.Session) -> bool:
    return any(item.get_closest_marker("slow") for item in session.items)


def _by_file(items: list[pytest.Item]) -> list[list[int]]:
    """Numbers of the tests of each file, the files that have slow ones first."""
    files: dict[str, list[int]] = {}
    for number, item in enumerate(items):
        files.setdefault(item.nodeid.partition("::")[0], []).append(number)
    return sorted(files.values(), key=lambda file: not any(items[n].get_closest_marker("slow") for n in file))


class _Workers:
    """Gives files to processes, and reports what they say as if the tests had run here."""

    def __init__(self, session: pytest.Session) -> None:
        self.session = session
        self.files = collections.deque(_by_file(session.items))
        self.pids: dict[Connection, int] = {}
        # By process the tests that it has not begun, and the one that it runs.
        self.given: dict[Connection, list[int]] = {}
        self.running: dict[Connection, int] = {}
        self.forked = 0

    def run(self, count: int) -> None:
        try:
            for _ in range(min(count, len(self.files))):
                self._fork()
            while self.pids:
                for connection in wait(list(self.pids), timeout=1):
                    self._hear(connection)  # type: ignore[arg-type]
                for connection, pid in list(self.pids.items()):
                    # A process that a test left behind holds the pipe too, which then has no end.
                    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                    if ended and not connection.poll():
                        self._ended(connection)
        finally:
            for connection, pid in self.pids.items():
                connection.close()
                os.waitpid(pid, 0)
        if self.session.shouldfail:
            raise self.session.Failed(self.session.shouldfail)
        if self.session.shouldstop:
            raise self.session.Interrupted(self.session.shouldstop)

    def _fork(self) -> None:
        ours, theirs = multiprocessing.Pipe()
        self.forked += 1
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            for other in self.pids:
                other.close()
            _work(self.session, theirs, self.forked)
        theirs.close()
        self.pids[ours], self.given[ours] = pid, []

    def _hear(self, connection: Connection) -> None:
        hook = self.session.config.hook
        try:
            what, *said = connection.recv()
        except (EOFError, ConnectionResetError):
            self._ended(connection)
            return
        if what == "next":
            stop = self.session.shouldfail or self.session.shouldstop or not self.files
            file = [] if stop else self.files.popleft()
            self.given[connection] += file
            connection.send(file)
        elif what == "begin":
            (number,) = said
            self.running[connection] = number
            self.given[connection].remove(number)
            item = self.session.items[number]
            hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        elif what == "report":
            report = hook.pytest_report_from_serializable(config=self.session.config, data=said[0])
            hook.pytest_runtest_logreport(report=report)
        else:
            item = self.session.items[self.running.pop(connection)]
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _ended(self, connection: Connection) -> None:
        """Report the test in which a process ended, and have another one run the rest."""
        _, status = os.waitpid(self.pids.pop(connection), 0)
        left, number = self.given.pop(connection), self.running.pop(connection, None)
        if number is not None:
            item = self.session.items[number]
            said = f"its process ended in the middle of it, with status {os.waitstatus_to_exitcode(status)}"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call")
            self.session.config.hook.pytest_runtest_logreport(report=report)
        elif status:
            raise RuntimeError(f"a process of tests ended with status {os.waitstatus_to_exitcode(status)}")
        if left:
            self.files.appendleft(left)
            self._fork()


class _Reports:
    """Sends what a test came to, in a process of tests."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self.config, self.connection = config, connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.connection.send(("report", data))


def _work(session: pytest.Session, connection: Connection, number: int) -> NoReturn:
    """Be a process of tests, up to its end."""
    try:
        config = session.config
        manager = config.pluginmanager
        captured: Any = manager.getplugin("capturemanager")
        captured.stop_global_capturing()
        captured.start_global_capturing()
        config.get_terminal_writer()._file = open(os.devnull, "w")  # noqa: SIM115
        manager.register(_Reports(config, connection))
        base = config._tmp_path_factory.getbasetemp() / f"worker{number}"  # type: ignore[attr-defined]
        base.mkdir()
        config._tmp_path_factory._basetemp = base  # type: ignore[attr-defined]
        if _starting(session):
            warm.install_forked(warm.TORCH)
        else:
            warm.install()
        _run(session, connection)
        warm.leave(0)
    except (Exception, KeyboardInterrupt):
        traceback.print_exc(file=sys.__stderr__)
    finally:
        # What the collecting process would do at its end is not this fork's to do; who is here did not leave by itself.
        os._exit(1)


def _run(session: pytest.Session, connection: Connection) -> None:
    """Run what is given, one file after the other; the next one is known before the last test of a file tears down what it alone needs."""

    def more() -> list[int]:
        connection.send(("next",))
        return list(connection.recv())

    waiting = collections.deque(more())
    while waiting:
        number = waiting.popleft()
        waiting.extend(() if waiting else more())
        item, after = session.items[number], session.items[waiting[0]] if waiting else None
        connection.send(("begin", number))
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        connection.send(("end",))
