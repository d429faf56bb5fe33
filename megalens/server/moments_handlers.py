"""Statistics of a run: what there is, rows, and groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated

from ..client.moments import MomentQuery, MomentSource
from .base_handler import MegalensHandler
from .errors import ServerError
from .moment_pool import MomentPool, SharedMoments
from .runs_handlers import ARROW

__all__ = ["MomentGroupsHandler", "MomentRowsHandler", "MomentsHandler", "StatisticsHandler"]

_MOST_WAIT = 30.0
_OPENING_WAIT = 1.0
_MOST_STATS = 6
_BATCH_ROWS = 1 << 16


class _Handler(MegalensHandler):
    """What the three endpoints of a run share: its source, and the answer while it is first read."""

    def initialize(self) -> None:
        super().initialize()
        self.gone = asyncio.Event()

    def on_connection_close(self) -> None:
        self.gone.set()
        super().on_connection_close()

    async def with_source(
        self, run_id: str, wait: float | None, answer: Callable[[SharedMoments], Awaitable[None]]
    ) -> None:
        """Answer from the source of a run, or 202 with the progress while it is being read for the first time."""
        pool: MomentPool = self.settings["megalens_moments"]
        async with pool.share(run_id) as shared:
            if await shared.opened(_OPENING_WAIT if wait is None else wait, self.gone):
                await answer(shared)
                return
            self.set_status(202)
            self.answer({"progress": {"done": shared.done, "total": max(shared.total, shared.done)}})

    async def stream(self, table: pa.Table) -> None:
        """Finish with a table as an Arrow stream, a piece at a time."""
        self.set_header("Content-Type", ARROW)
        sink = _Pieces()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
                writer.write_batch(batch)
                self.write(sink.take())
                await self.flush()
        self.finish(sink.take(), set_content_type=ARROW)

    def number(self, body: dict[str, Any], name: str, least: int | None = None) -> int | None:
        """Return a whole number of a body, or None where it is not there."""
        value = body.get(name)
        whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62
        if value is not None and not (whole and (least is None or value >= least)):
            bound = "" if least is None else f" from {least}"
            raise ServerError(
                400, "bad-parameter", f"{name} must be a whole number{bound}, and {value!r:.50} came.", name
            )
        return value if whole else None


class MomentsHandler(_Handler):
    """``megalens/api/runs/{id}/moments``."""

    @authenticated
    @authorized
    async def get(self, run_id: str) -> None:
        """Answer what there is; with ``since`` and ``wait`` once there is more, or 304."""
        since, wait = self.get_query_argument("since", None), self._seconds()

        async def answer(shared: SharedMoments) -> None:
            await shared.refresh()
            known = since is not None and since == shared.version
            if known and not await shared.newer(since or "", wait or 0.0, self.gone):
                self.set_status(304)
                self.finish()
                return
            place = shared.names_known(since)
            names = shared.index["names"][place:]
            last = max((entry["last"] for entry in shared.index["stats"]), default=None)
            if last is not None:
                self.registry.saw(run_id, step=last)
            self.answer({**shared.index, "version": shared.version, "names_from": place, "names": names})

        await self.with_source(run_id, wait, answer)

    def _seconds(self) -> float | None:
        text = self.get_query_argument("wait", None)
        try:
            seconds = None if text is None else float(text)
        except ValueError:
            seconds = -1.0
        if seconds is not None and not 0 <= seconds <= _MOST_WAIT:
            raise ServerError(
                400,
                "bad-parameter",
                f"wait must be seconds from 0 to {_MOST_WAIT:g}, and {text!r:.50} came.",
                "wait",
            )
        return seconds


class MomentRowsHandler(_Handler):
    """``megalens/api/runs/{id}/moments/rows``."""

    @authenticated
    @authorized
    async def post(self, run_id: str) -> None:
        """Answer the rows that match."""
        body = self.json_body()
        _only(body, ("stats", "where", "first", "last", "limit_rows"))
        stats = body.get("stats")
        if not isinstance(stats, list) or not 1 <= len(stats) <= _MOST_STATS:
            raise ServerError(400, "bad-parameter", "stats must be a list of 1 to 6 of them.", "stats")
        where = _where(body)
        steps = self.number(body, "first"), self.number(body, "last")
        most: int = self.settings["megalens_limit_rows"]
        asked = self.number(body, "limit_rows", 1)
        limit = most if asked is None else min(most, asked)

        def read(source: MomentSource) -> pa.Table:
            return _narrow(source.rows(list(dict.fromkeys(stats)), where, steps, limit), source)

        async def answer(shared: SharedMoments) -> None:
            await self.stream(await shared.ask(read, self.gone))

        await self.with_source(run_id, None, answer)


class MomentGroupsHandler(_Handler):
    """``megalens/api/runs/{id}/moments/groups``."""

    @authenticated
    @authorized
    async def post(self, run_id: str) -> None:
        """Answer merged groups."""
        body = self.json_body()
        by = body.get("by", [])
        # A request names columns; regular expressions and functions are the kernel's.
        if (
            not isinstance(by, list)
            or len(by) > 12
            or not all(isinstance(c, str) and "(" not in c for c in by)
        ):
            raise ServerError(400, "bad-parameter", "by must be a list of columns.", "by")
        for name in ("first", "last"):
            self.number(body, name)
        if not isinstance(body.get("mixed", False), bool):
            raise ServerError(400, "bad-parameter", "mixed must be true or false.", "mixed")
        query = MomentQuery.of_members({**body, "by": by, "where": _where(body)})

        def read(source: MomentSource) -> tuple[pa.Table, int, int]:
            found = source.groups(query)
            return _group_columns(found.table, by), found.groups_total, found.steps_total

        async def answer(shared: SharedMoments) -> None:
            table, groups, steps = await shared.ask(read, self.gone)
            self.set_header("X-Megalens-Groups", str(groups))
            self.set_header("X-Megalens-Steps", str(steps))
            await self.stream(table)

        await self.with_source(run_id, None, answer)


class StatisticsHandler(MegalensHandler):
    """``megalens/api/statistics``."""

    @authenticated
    @authorized
    async def post(self) -> None:
        """Open a tree of raw-moment files and answer the entries of its runs."""
        body = self.json_body()
        _only(body, ("path",))
        runs, warnings = await self.in_thread(self.registry.open_statistics, body.get("path"))
        self.answer({"runs": runs, "warnings": warnings})


class _Pieces:
    """A file to which an Arrow stream is written and from which its bytes are taken as they come."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(self._pieces[-1])

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def take(self) -> bytes:
        taken, self._pieces = b"".join(self._pieces), []
        return taken


def _only(body: dict[str, Any], known: tuple[str, ...]) -> None:
    unknown = [name for name in body if name not in known]
    if unknown:
        raise ServerError(
            400,
            "bad-parameter",
            f"The body may hold {', '.join(known)}, and {unknown[0]!r:.60} came.",
            unknown[0][:60],
        )


def _where(body: dict[str, Any]) -> dict[str, Any] | None:
    where = body.get("where")
    if where is not None and not isinstance(where, dict):
        raise ServerError(400, "bad-parameter", "where must be an object of columns.", "where")
    return where


def _narrow(table: pa.Table, source: MomentSource) -> pa.Table:
    """Return rows as they travel: whole numbers of 64 bits as float64, what repeats as dictionaries."""
    names = pa.array(source.index()["names"], pa.utf8())
    columns: dict[str, Any] = {}
    for field in table.schema:
        column = table.column(field.name)
        if field.name == "name_id":
            columns["name"] = pa.chunked_array(
                [pa.DictionaryArray.from_arrays(chunk, names) for chunk in column.chunks],
                pa.dictionary(pa.int32(), pa.utf8()),
            )
        elif pa.types.is_string(field.type):
            columns[field.name] = column.dictionary_encode().unify_dictionaries()
        else:
            columns[field.name] = column.cast(pa.float64()) if pa.types.is_int64(field.type) else column
    return pa.table(columns)


def _group_columns(table: pa.Table, by: list[str]) -> pa.Table:
    """Return groups as they travel: keys with text as dictionaries, the number of each row's group, what a picture needs of it."""
    keys: dict[str, pa.Array] = {}
    changed = np.zeros(max(0, table.num_rows - 1), bool)
    for label in by:
        column = table.column(label).combine_chunks()
        if pa.types.is_string(column.type):
            column = column.dictionary_encode()
        keys[label] = column
        # Groups follow each other, and no two have the same key.
        codes = pc.fill_null(column.indices if pa.types.is_dictionary(column.type) else column, -1).to_numpy()
        changed |= codes[1:] != codes[:-1]
    group = np.concatenate([np.zeros(min(1, table.num_rows), np.int32), np.cumsum(changed, dtype=np.int32)])
    numbers = {name: table.column(name).cast(pa.float64()) for name in ("step", "samples", "value", "count")}
    nonfinite = pc.add(table.column("nan_count"), table.column("inf_count"))
    return pa.table(
        {
            **keys,
            "group": pa.array(group, pa.int32()),
            **numbers,
            "nonfinite": nonfinite.cast(pa.float64()),
            "error": table.column("error").cast(pa.float64()),
            "scaled": table.column("scaled").cast(pa.int8()).cast(pa.float64()),
        }
    )
