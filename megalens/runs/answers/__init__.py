"""What a view asks of a run: the same code answers for the Jupyter server and for the engine in a kernel."""

from .lines_answer import scalar_lines, tensor_lines
from .moment_request import moment_groups, moment_rows
from .run_answers import RunAnswers, answers_of, rows_of
from .selection import NoRows, SelectedRows, StreamRows, read_selection, tensor_index
from .stream_query import StreamQuery

__all__ = [
    "NoRows",
    "RunAnswers",
    "SelectedRows",
    "StreamQuery",
    "StreamRows",
    "answers_of",
    "moment_groups",
    "moment_rows",
    "read_selection",
    "rows_of",
    "scalar_lines",
    "tensor_index",
    "tensor_lines",
]
