"""A run folder that somebody else wrote: ``run.json``, Parquet and Arrow streams, read by the client and the server's answers and replayed; statistics as they are asked for."""

import io
import json
import shutil
import tempfile
import threading
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from recorded_moments import moment_table
from recorded_run import RUN_ID, write_run

from megalens.hub.recording_folder import RecordingFolder
from megalens.hub.replay.replayer import RecordedOrder, Replayer, announcement
from megalens.hub.segment_file import seal_tail
from megalens.protocol import (
    STREAMS,
    FrameChecker,
    ProtocolError,
    decode_frame,
    encode_frame,
    encode_message,
    segment_name,
    stream_schema,
)
from megalens.protocol.contract import contract_json
from megalens.runs import ClientError, RunFolder
from megalens.runs.answers import StreamQuery, read_selection, tensor_index
from megalens.runs.moments import MomentQuery, MomentSource, RecordedRows
from tests.fuzz.mutate import json_text, mutated_bytes, mutated_tree, schema_words
from tests.fuzz.surface import Surface

_FOLDER = Path(tempfile.mkdtemp())
# Sealed segments, a tail that was left beside one, and the newest tail.
_SEGMENTS = Path(__file__).parents[3] / "protocol/fixtures/recordings/segments"
_WORDS = [*schema_words(contract_json("messages.schema.json")), "missing_steps", "streams", "ended", "format"]


def _seeds() -> list[Any]:
    whole = write_run(_FOLDER / "seed" / RUN_ID, steps=3, layers=2, nonfinite_at=2)
    packed = {path.name: path.read_bytes() for path in sorted(whole.iterdir())}
    only = {"run.json": packed["run.json"]}
    tables = {name: pq.read_table(whole / f"{name}.parquet") for name in ("tensors", "scalars", "audit")}
    live = only | {f"{name}.arrows": _arrows(table) for name, table in tables.items()}
    others = [
        only | {f"{name}.parquet": _parquet(table, **options) for name, table in tables.items()}
        for options in _OPTIONS
    ]
    statistics = moment_table(range(1, 9))
    # As another program writes them: no index, so that DuckDB looks for what there is, and steps that are in no order.
    mixed = pa.concat_tables([statistics.slice(40), statistics.slice(0, 40)])
    growing, place = _arrows(statistics), whole / "moments.arrows"
    place.write_bytes(growing)
    moments = [
        {"moments.parquet": seal_tail(place, STREAMS["moments"]).read_bytes()},
        {"moments.parquet": _parquet(mixed, row_group_size=40)},
        {"moments.arrows": growing},
    ]
    recorded = [only | _growing(tables), _files(_SEGMENTS)]
    return [packed, live, *recorded, *others, *(only | each for each in moments)]


def _files(folder: Path) -> dict[str, bytes]:
    """Return what lies in a folder and in those in it, by path."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def _growing(tables: dict[str, pa.Table]) -> dict[str, bytes]:
    """Return files as a recorder writes them that is still there, and sealed statistics before the same again."""
    recording, checker = RecordingFolder(_FOLDER / "growing"), FrameChecker()
    for name, table in {**tables, "moments": moment_table(range(1, 9))}.items():
        for at in range(0, table.num_rows, 4):
            rows = table.slice(at, 4).cast(stream_schema(name)).combine_chunks()
            data = encode_frame(name, rows, step=1)
            recording.append(checker.check(decode_frame(data), data))
    recording.close()
    (tail,) = (_FOLDER / "growing/moments").glob("*.arrows")
    growing = tail.read_bytes()
    later = tail.with_name(segment_name(1, 1, ".arrows"))
    seal_tail(tail, STREAMS["moments"])
    later.write_bytes(growing)
    return _files(_FOLDER / "growing")


_OPTIONS: list[dict[str, Any]] = [
    {"compression": "zstd", "data_page_version": "2.0", "row_group_size": 5},
    {
        "compression": "lz4",
        "use_dictionary": False,
        "write_page_index": True,
        "store_decimal_as_integer": True,
    },
    {"compression": "none", "write_statistics": False, "data_page_size": 64, "dictionary_pagesize_limit": 64},
]


def _parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def _arrows(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    return sink.getvalue()


def _mutate(chance: Random, seed: Any) -> Any:
    files = dict(seed)
    for name in chance.sample(sorted(files), chance.choice((1, 1, 2))):
        data = files[name]
        if name == "run.json":
            text = json_text(chance, mutated_tree(chance, json.loads(data), _WORDS))
            files[name] = text.encode("utf-8", "surrogatepass")
        else:
            # Footer of Parquet, schema and metadata of Arrow.
            ends = (
                range(max(0, len(data) - 3000), len(data))
                if name.endswith("parquet")
                else range(min(3000, len(data)))
            )
            files[name] = mutated_bytes(chance, data, (ends, range(len(data))))
    return files


def _run(files: Any) -> None:
    place = _FOLDER / "run" / RUN_ID
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for name, data in files.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(data)
    folder = RunFolder(place)
    hello = folder.hello()
    encode_message(hello).encode("utf-8")
    encode_message(folder.status()).encode("utf-8")
    json.dumps(
        [folder.id, folder.name, folder.started, folder.ended, folder.step, folder.truncated()],
        allow_nan=False,
        ensure_ascii=False,
    ).encode("utf-8")
    wrong: list[BaseException] = []
    for stream in ("tensors", "scalars", "audit"):
        try:
            read_selection(
                folder,
                StreamQuery.of(STREAMS, stream, {"steps": [1, 3]}, 1 << 20),
                threading.Event(),
            )
        except ClientError as error:
            wrong.append(error)
    try:
        tensor_index(folder, threading.Event())
        encode_message(announcement(folder, Replayer(folder).config, 1.0)).encode("utf-8")
        timeline = RecordedOrder(folder)
        for chunk in timeline.chunks():
            assert timeline.seconds(chunk.step) >= 0
    except ClientError as error:
        wrong.append(error)
    try:
        _ask_moments(place)
    except ClientError as error:
        wrong.append(error)
    if wrong:
        raise wrong[0]


def _ask_moments(place: Path) -> None:
    source = MomentSource(RecordedRows(place))
    try:
        source.refresh()
        json.dumps(source.index(), allow_nan=False, ensure_ascii=False).encode("utf-8")
        source.rows(["param", "grad"], None, (1, 4), 1_000)
        source.groups(MomentQuery.of("param", "std", by=["name"]))
    finally:
        source.close()


SURFACE = Surface(_seeds, _mutate, _run, (ClientError, ProtocolError))
