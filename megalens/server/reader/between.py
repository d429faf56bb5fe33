"""What the Jupyter server and the reading process say to each other beside the request itself."""

from __future__ import annotations

from typing import Any, TypedDict

# Where the runs of a request are: a RunPlace by id, JSON.
RUNS_HEADER = "X-Megalens-Runs"
# The last step of a run's statistics, for the list of runs.
STEP_HEADER = "X-Megalens-Step"
# Of a request: it holds where its runs are.
MOST_HEADER = 1 << 20


class ReaderSettings(TypedDict):
    """What the process is told when it starts; ``memory`` in bytes, ``engine`` an address or nothing."""

    token: str
    memory: int
    limit_bytes: int
    limit_rows: int
    engine: str


class RunPlace(TypedDict, total=False):
    """Where a run is: at least one of ``folder``, ``tree`` and ``hub``, an address and its token.

    ``tree`` has the fields of ``StatisticsTree``.
    """

    name: str
    folder: str
    tree: dict[str, Any]
    hub: tuple[str, str]
