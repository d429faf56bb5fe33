"""A run folder that somebody else wrote: ``run.json``, Parquet and Arrow streams, read by the client and the server's answers and replayed."""

import json
import shutil
import tempfile
import threading
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from recorded_run import RUN_ID, write_run

from megalens.client import ClientError, RunFolder
from megalens.client.answers import StreamQuery, read_selection, tensor_index
from megalens.protocol import STREAMS, ProtocolError, encode_message
from megalens.protocol.contract import contract_json
from megalens.replay.announcement import announcement
from megalens.replay.replayer import Replayer
from megalens.replay.timeline import Timeline
from tests.fuzz.mutate import json_text, mutated_bytes, mutated_tree, schema_words
from tests.fuzz.surface import Surface

_FOLDER = Path(tempfile.mkdtemp())
_WORDS = [*schema_words(contract_json("messages.schema.json")), "missing_steps", "streams", "ended", "format"]


def _seeds() -> list[Any]:
    whole = write_run(_FOLDER / "seed" / RUN_ID, steps=3, layers=2, nonfinite_at=2)
    packed = {path.name: path.read_bytes() for path in sorted(whole.iterdir())}
    live = {name: data for name, data in packed.items() if name == "run.json"}
    for name in ("tensors", "scalars", "audit"):
        table = pq.read_table(whole / f"{name}.parquet")
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=4)
        live[f"{name}.arrows"] = sink.getvalue().to_pybytes()
    return [packed, packed, live]


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
                StreamQuery.of_texts(STREAMS, stream, {"first": "1", "last": "3"}, 1 << 20),
                threading.Event(),
            )
        except ClientError as error:
            wrong.append(error)
    try:
        tensor_index(folder, threading.Event())
        encode_message(announcement(folder, Replayer(folder).config, 1.0)).encode("utf-8")
        timeline = Timeline(folder)
        for chunk in timeline.chunks():
            assert timeline.seconds(chunk.step) >= 0
    except ClientError as error:
        wrong.append(error)
    if wrong:
        raise wrong[0]


SURFACE = Surface(_seeds, _mutate, _run, (ClientError, ProtocolError))
