"""SQL over the streams of a run, in an isolated database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from .answers.selection import StreamRows
from .errors import ClientError, bad_argument, bad_parameter

if TYPE_CHECKING:
    from pandas import DataFrame


def sql_frame(rows: StreamRows, query: str) -> DataFrame:
    if not isinstance(query, str):
        raise bad_argument("query", "text in SQL", query)
    try:
        import duckdb
    except ModuleNotFoundError:
        raise ClientError(
            "run.sql(…) needs DuckDB, which is not installed here: pip install duckdb. run.table(…) reads "
            "the same rows without it.",
            code="unsupported",
        ) from None

    from ..protocol import make_run_folder
    from .moments.rows.import_folder import cache_folder

    tables = {name: _StreamScan(rows, name) for name in rows.streams}
    # A copied query must read the run and nothing else: no file, no network, no variable of the notebook.
    config: dict[str, Any] = {
        "python_enable_replacements": "false",
        "enable_external_access": "false",
        "temp_directory": str(cache_folder() / "spill"),
    }
    make_run_folder(cache_folder(), exist_ok=True)
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
    return bad_parameter(f"The query cannot be answered. {why}\nTables: {', '.join(tables)}.", "query")


class _StreamScan(ds.InMemoryDataset):  # type: ignore[misc]
    """A stream as DuckDB scans it, from its beginning, a batch at a time, if a query names it.

    DuckDB asks a pyarrow dataset for the columns and rows that a query needs. It holds none itself.
    """

    def __init__(self, rows: StreamRows, stream: str) -> None:
        self._rows, self._stream = rows, stream
        self._columns = rows.streams.named(stream).schema
        super().__init__(self._columns.empty_table())
        self.error: Exception | None = None

    def scanner(self, columns: Any = None, filter: Any = None, **_: Any) -> ds.Scanner:
        # A filter does not tell its columns: one whose name is in its text may be of them.
        text = "" if filter is None else str(filter)
        names = self._columns.names
        needed = names if columns is None else [each for each in names if each in columns or each in text]
        schema = pa.schema([self._columns.field(name) for name in needed])
        reader = pa.RecordBatchReader.from_batches(schema, self._batches(needed))
        return ds.Scanner.from_batches(reader, columns=columns, filter=filter)

    def _batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._rows.batches(self._stream, None, columns)
        except Exception as error:
            # DuckDB would make a text of it.
            self.error = error
            raise
