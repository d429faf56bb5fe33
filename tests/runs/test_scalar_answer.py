"""Lines of scalars as the server answers them, of a run that goes on while it is read."""

import threading

import pyarrow as pa

from megalens.protocol import STREAMS, stream_schema
from megalens.runs.answers.lines_answer import read_scalars


class Growing:
    """Rows of a run in which a name comes only after somebody has looked for all names."""

    streams = STREAMS
    missing_steps = ()

    def __init__(self):
        self.reads = 0

    def batches(self, stream, query=None, columns=None):
        self.reads += 1
        for step in range(1, 4):
            names = ["loss", "lr", *(["late"] if self.reads > 1 else [])]
            rows = [
                {"step": step, "rank": 0, "time": 1.0, "name": name, "value": step + at, "unit": "s"}
                for at, name in enumerate(names)
            ]
            table = pa.Table.from_pylist(rows, stream_schema("scalars"))
            yield from table.select(columns or table.schema.names).to_batches()


def test_a_name_that_comes_while_lines_are_read_is_left_for_the_next_answer() -> None:
    found = read_scalars(Growing(), {}, threading.Event())
    assert found.about["lines"] == [{"name": "loss", "total": 3}, {"name": "lr", "total": 3}]
    assert found.table["line"].to_pylist() == [0, 0, 0, 1, 1, 1]
    assert found.table["step"].to_pylist() == [1, 2, 3, 1, 2, 3]
    assert found.table["value"].to_pylist() == [1, 2, 3, 2, 3, 4]


def test_only_names_that_are_there_have_lines() -> None:
    found = read_scalars(Growing(), {"names": ["lr", "nothing"]}, threading.Event())
    assert found.about["lines"] == [{"name": "lr", "total": 3}]
    assert found.table["value"].to_pylist() == [2, 3, 4]
