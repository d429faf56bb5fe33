"""``python -m tests.fuzz.bounds [WORD …]`` takes each bound of a reader away, one after the other, and sees a test fail.

As a plugin of pytest (``-p tests.fuzz.bounds``) it has one module loaded with one line of its source changed, as the environment says.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import NamedTuple

__all__ = ["BOUNDS", "Bound", "main"]

_ROOT = Path(__file__).parents[2]
_CHANGE = "MEGALENS_WITHOUT_BOUND"


class Bound(NamedTuple):
    """A line of a reader, what it is without its bound, and the test that must fail then."""

    file: str
    line: str
    without: str
    test: str


_CSV = "runs/moments/trainermon/files.py"
_CSV_TESTS = "tests/runs/test_trainermon_folders.py"
_TRACE_TESTS = "tests/instruments/timeline/test_damaged_traces.py"
_JSONL_TESTS = "tests/runs/test_moment_jsonl_refusals.py"
_STREAM_TESTS = "tests/runs/test_hostile_streams.py"
_VECTOR_TESTS = "tests/tracer/test_vectors.py"
_MEGASCAN = "instruments/timeline/megascan_files.py"
_SPANS = "instruments/timeline/span_columns.py"
_FOOTER = "runs/parquet_footer.py"
_VECTORS = "tracer/vector_files.py"
BOUNDS = (
    Bound(_CSV, "_MOST_COLUMNS = 64", "_MOST_COLUMNS = 640", f"{_CSV_TESTS}::test_headers_without_end_are_left_out_and_counted"),
    Bound(_CSV, "if place.headers >= _MOST_HEADERS or len(", "if len(", f"{_CSV_TESTS}::test_headers_without_end_are_left_out_and_counted"),
    Bound(_CSV, "if len(rows) == _ROWS:", "if False:", f"{_CSV_TESTS}::test_few_rows_of_a_file_with_a_cut_line_are_pythons_at_a_time"),
    Bound(_CSV, "file.read(min(most, size - place.end))", "file.read()", f"{_CSV_TESTS}::test_blocks_of_a_file_give_what_it_gives_whole"),
    Bound("runs/moments/trainermon/imported_folder.py", "if done.end - place.end >= _SEGMENT_BYTES:", "if False:", f"{_CSV_TESTS}::test_a_large_file_that_grows_is_read_from_where_it_was_sealed"),
    Bound("runs/moments/jsonl/chunk.py", "_signs(text) > _MOST_SIGNS", "False", f"{_JSONL_TESTS}::test_a_line_of_millions_of_values_is_left_out_before_it_is_parsed"),
    Bound("runs/moments/jsonl/chunk.py", "len(values) > _MOST_NAMES or", "", f"{_JSONL_TESTS}::test_names_are_bounded_in_a_line_and_in_what_is_read_together"),
    Bound("runs/moments/jsonl/chunk.py", "len(self._names) >= _MOST_NAMES and", "False and", f"{_JSONL_TESTS}::test_names_are_bounded_in_a_line_and_in_what_is_read_together"),
    Bound("runs/moments/jsonl/ingest.py", "if end is None and (inside or size - begin > _LINE_BYTES):", "if end is None and inside:", f"{_JSONL_TESTS}::test_a_line_that_is_too_long_is_left_out_in_bounded_memory"),
    Bound("instruments/timeline/trace_events.py", "if most < 0:", "if False:", f"{_TRACE_TESTS}::test_what_unfolds_to_more_than_traces_do_is_read_in_part"),
    Bound("instruments/timeline/trace_events.py", "elif len(text) > _LARGEST_EVENT:", "elif False:", f"{_TRACE_TESTS}::test_one_damaged_event_costs_itself_and_is_named_with_its_place"),
    Bound("instruments/timeline/megascan_files.py", "islice(rows, most_rows)", "rows", f"{_TRACE_TESTS}::test_so_many_rows_of_megatronapp_are_read_as_all_files_of_a_job_may_have"),
    Bound("instruments/monitor/trainermon/anomalies.py", "read_json_file(path, _MOST_BYTES)", "read_json_file(path, 1 << 40)", "tests/instruments/monitor/test_trainermon_anomalies.py::test_files_of_any_size_are_bounded_before_they_are_read"),
    Bound("instruments/monitor/trainermon/anomalies.py", "if len(warnings) < _MOST_WARNINGS:", "if True:", "tests/instruments/monitor/test_trainermon_anomalies.py::test_files_of_any_size_are_bounded_before_they_are_read"),
    Bound("protocol/outside.py", "_MOST_VALUES = 2_000_000", "_MOST_VALUES = 1 << 40", "tests/protocol/test_bounds.py::test_a_message_of_many_small_values_is_refused_before_it_is_read"),
    Bound("protocol/outside.py", "_MOST_DEPTH = 32", "_MOST_DEPTH = 1 << 20", "tests/protocol/test_bounds.py::test_values_that_nest_deeper_than_any_of_ours_are_refused"),
    Bound("server/json_requests.py", "if len(self.request.body) > MOST_BODY:", "if False:", "tests/server/test_reader.py::test_a_body_is_bounded_before_it_is_parsed"),
    Bound("tracer/tensors/reductions.py", "if len(text) > MAX_LENGTH:", "if False:", "tests/tracer/test_reductions.py::test_an_expression_is_bounded_in_length_depth_and_operations"),
    Bound("tracer/tensors/reductions.py", "_MAX_DEPTH = 24", "_MAX_DEPTH = 2400", "tests/tracer/test_reductions.py::test_an_expression_is_bounded_in_length_depth_and_operations"),
    Bound("tracer/tensors/reductions.py", "_MAX_NODES = 120", "_MAX_NODES = 12000", "tests/tracer/test_reductions.py::test_an_expression_is_bounded_in_length_depth_and_operations"),
    Bound("runs/moments/grouping/name_filter.py", "if len(pattern) > _MOST_CHARACTERS:", "if False:", "tests/runs/test_patterns.py"),
    Bound("runs/moments/grouping/name_filter.py", "if sum(open_sizes) > _MOST_POSITIONS:", "if False:", "tests/runs/test_patterns.py"),
    Bound(_SPANS, "if len(self) >= _MOST_SPANS:", "if False:", f"{_TRACE_TESTS}::test_spans_and_their_texts_are_bounded"),
    Bound(_SPANS, "if self._text_bytes + size > _MOST_TEXT_BYTES:", "if False:", f"{_TRACE_TESTS}::test_spans_and_their_texts_are_bounded"),
    Bound("instruments/timeline/trace_folder.py", "if len(entries) > _MOST_FILES:", "if False:", f"{_TRACE_TESTS}::test_files_of_a_job_are_bounded_in_number_and_size"),
    Bound(_MEGASCAN, "if path.stat().st_size > _MOST_BYTES:", "if False:", f"{_TRACE_TESTS}::test_files_of_a_job_are_bounded_in_number_and_size"),
    Bound(_FOOTER, "if length > _MOST_FOOTER:", "if False:", f"{_STREAM_TESTS}::test_a_footer_is_bounded_before_it_is_read"),
    Bound(_FOOTER, "if self._left < 0:", "if False:", f"{_STREAM_TESTS}::test_a_footer_is_bounded_before_it_is_read"),
    Bound(_FOOTER, "if len(elements) > _MOST_COLUMNS:", "if False:", f"{_STREAM_TESTS}::test_a_footer_is_bounded_before_it_is_read"),
    Bound(_FOOTER, "if depth > _MOST_DEPTH:", "if False:", f"{_STREAM_TESTS}::test_a_footer_is_bounded_before_it_is_read"),
    Bound("runs/recorded_parquet.py", "if pages > _MOST_PAGES:", "if False:", f"{_STREAM_TESTS}::test_pages_and_texts_are_bounded_by_their_own_headers"),
    Bound("runs/recorded_arrow.py", "if unfolded > max(_ANY_BYTES, _TIMES * stored):", "if False:", f"{_STREAM_TESTS}::test_pages_and_texts_are_bounded_by_their_own_headers"),
    Bound("runs/recorded_arrow.py", "rows < 0 or rows > max(_ANY_ROWS, _ROWS_A_BYTE * stored)", "rows < 0", f"{_STREAM_TESTS}::test_pages_and_texts_are_bounded_by_their_own_headers"),
    Bound("tracer/vectors.py", "if about.st_size > _MAX_BYTES:", "if False:", f"{_VECTOR_TESTS}::test_headers_are_bounded_before_they_are_read"),
    Bound("tracer/vectors.py", "if held > _MOST_HELD:", "if False:", f"{_VECTOR_TESTS}::test_what_takes_too_much_memory_is_refused_before_it_is_read"),
    Bound(_VECTORS, "if len(data) > _MOST_AT_ONCE:", "if False:", f"{_VECTOR_TESTS}::test_headers_are_bounded_before_they_are_read"),
    Bound(_VECTORS, "min(size - 8, _MOST_HEADER)", "size - 8", f"{_VECTOR_TESTS}::test_headers_are_bounded_before_they_are_read"),
    Bound(_VECTORS, "if length > _MOST_PICKLED:", "if False:", f"{_VECTOR_TESTS}::test_headers_are_bounded_before_they_are_read"),
    Bound("hub/dialects/peer_message.py", "len(sizes) <= _MOST_AXES", "True", "tests/hub/dialects/test_peer_fuzz.py::test_an_update_is_bounded"),
    Bound("hub/dialects/peer_message.py", "math.prod(max(size, 1) for size in sizes) <= _MOST_VALUES", "True", "tests/hub/dialects/test_peer_fuzz.py::test_an_update_is_bounded"),
    Bound("hub/dialects/peer_message.py", "not 0 <= layer <= MOST_LAYERS", "not 0 <= layer", "tests/hub/dialects/test_peer_fuzz.py::test_an_update_is_bounded"),
    Bound("hub/dialects/peer_message.py", "if len(result) > _MOST_VALUES:", "if False:", "tests/hub/dialects/test_peer_fuzz.py::test_an_update_is_bounded"),
    Bound("hub/dialects/hub_gateway.py", "if len(self._clients) >= _MOST_CLIENTS:", "if False:", "tests/hub/dialects/test_gateway.py::test_clients_and_their_messages_are_bounded"),
    Bound("hub/dialects/hub_gateway.py", "max_size=_MOST_REQUEST,", "max_size=None,", "tests/hub/dialects/test_gateway.py::test_clients_and_their_messages_are_bounded"),
    Bound("protocol/messages.py", "> MAX_TEXT_BYTES", "< 0", "tests/protocol/test_bounds.py::test_a_text_longer_than_any_message_is_refused_before_it_is_read"),
    Bound("protocol/outside.py", "if len(data) > most_bytes:", "if False:", "tests/server/test_hostile_run_folders.py::test_a_header_is_bounded_before_it_is_parsed"),
)  # fmt: skip


def main(words: list[str]) -> int:
    """Try each bound whose file or test has one of the words; the exit code says whether some test noticed nothing."""
    chosen = [each for each in BOUNDS if not words or any(word in each.file + each.test for word in words)]
    unnoticed = 0
    for each in chosen:
        here = (_ROOT / "megalens" / each.file).is_file() and (_ROOT / each.test.partition("::")[0]).is_file()
        if not here:
            # Of a slice that is not there.
            continue
        run = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "tests.fuzz.bounds", each.test]
        done = subprocess.run(
            run,
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": str(_ROOT), _CHANGE: str(BOUNDS.index(each))},
            capture_output=True,
            text=True,
            check=False,
        )
        # One that no test ran for, or that broke the module, is no proof either.
        noticed = done.returncode == 1 and "LookupError" not in done.stdout
        unnoticed += not noticed
        print(f"{'noticed' if noticed else 'NOT NOTICED'}: {each.file}: {each.line}", flush=True)
        if not noticed:
            print(done.stdout[-800:])
    print(f"{len(chosen)} bounds, {unnoticed} not noticed")
    return 1 if unnoticed else 0


class _Loader:
    """Loads one module with a line of its source changed."""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._path = _ROOT / "megalens" / bound.file
        self._usual = SourceFileLoader.get_code

    def get_code(self, loader: SourceFileLoader, fullname: str) -> CodeType | None:
        if Path(loader.path) != self._path:
            return self._usual(loader, fullname)
        source = self._path.read_text(encoding="utf-8")
        if source.count(self._bound.line) != 1:
            raise LookupError(f"{self._bound.file} must have {self._bound.line!r} once.")
        return compile(source.replace(self._bound.line, self._bound.without), loader.path, "exec")


if _CHANGE in os.environ:
    _loader = _Loader(BOUNDS[int(os.environ[_CHANGE])])
    SourceFileLoader.get_code = lambda self, fullname: _loader.get_code(self, fullname)  # type: ignore


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
