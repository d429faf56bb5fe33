"""Runs as a kernel sees them: one object for a live run and for a recorded one."""

from .connect import connect
from .errors import ClientError
from .open_run import open_all_runs, open_run
from .query import Query
from .run import Run
from .run_folder import RunFolder

__all__ = [
    "ClientError",
    "Query",
    "Run",
    "RunFolder",
    "connect",
    "open_all_runs",
    "open_run",
]
