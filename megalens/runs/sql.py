"""SQL over the streams of a run, in an isolated database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from .answers.selection import StreamRows
from .errors import ClientError, bad_argument

if TYPE_CHECKING:
    from pandas import DataFrame


def sql_frame(rows: StreamRows, query: str) -> DataFrame:
    if not isinstance(query, str):
        raise bad_argument("query", "text in SQL", query)
    import duckdb

    from .moments.rows.cache_folder import cache_folder

    tables = {name: _StreamScan(rows, name) for name in rows.streams}
    # A copied query must read the run and nothing else: no file, no network, no variable of the notebook.
    config: dict[str, Any] = {
        "python_enable_replacements": "false",
        "enable_external_access": "false",
        "temp_directory": str(cache_folder() / "spill"),
    }
    with duckdb.connect(config=config) as connection:
        for name, table in tables.items():
            connection.register(name, table)
        connection.execute("SET lock_configuration = true")
        try:
            statements = connection.extract_statements(query)
            if [each.type for each in statements] != [duckdb.StatementType.SELECT]:
                raise _refused("It must be one SELECT, WITH, FROM, DESCRIBE or SUMMARIZE.", tables)
            return connection.execute(statements[0]).df()
        except duckdb.Error as error:
            broken = next((table.error for table in tables.values() if table.error is not None), None)
            raise (_refused(str(error), tables) if broken is None else broken) from error


def _refused(why: str, tables: dict[str, Any]) -> ClientError:
    return ClientError(
        f"The query cannot be answered. {why}\nTables: {', '.join(tables)}.",
        code="bad-parameter",
        field="query",
    )


class _StreamScan:
    """A stream as DuckDB scans it, from its beginning, a batch at a time, if a query names it."""

    def __init__(self, rows: StreamRows, stream: str) -> None:
        self._rows, self._stream = rows, stream
        self._schema = rows.streams.named(stream).schema
        self.error: Exception | None = None

    def _batches(self) -> Any:
        try:
            yield from self._rows.batches(self._stream)
        except Exception as error:
            # DuckDB would make a text of it.
            self.error = error
            raise

    def __arrow_c_schema__(self) -> Any:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)
