"""Recorded streams that are small on disk and large in memory, and ones whose bytes were changed.

As a program, ``python -m hostile_streams FOLDER`` asks a run all that the server asks of it, within 4 GiB, and prints what came of it, as the last line of its output.
"""

from __future__ import annotations

import json
import random
import resource
import struct
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from recorded_run import tensor_row

from megalens.protocol import segment_name, stream_schema

MIB = 1 << 20


def tensors(rows, **columns):
    """Return rows of the stream ``tensors``, each column a list of values, or one value for all of them."""
    usual = tensor_row(**({"source_shape": [1, 1], "shape": [1, 1], "values": [0.5]} | columns))
    schema = stream_schema("tensors")
    # Repeated by their places, so that the bombs cost nothing here.
    return pa.table(
        [
            pa.array([usual[field.name]], field.type).take(pa.array(np.zeros(rows, np.int32)))
            if not isinstance(usual[field.name], pa.Array)
            else usual[field.name]
            for field in schema
        ],
        names=schema.names,
    )


def _words(text, rows):
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))


def _lists(values, lengths):
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def sealed(path, stream="tensors"):
    """Return where the first sealed segment of a stream lies."""
    return _segment(path, stream, ".parquet")


def tail(path, stream="tensors"):
    """Return where the first tail of a stream lies."""
    return _segment(path, stream, ".arrows")


def _segment(path, stream, suffix):
    (path / stream).mkdir(exist_ok=True)
    return path / stream / segment_name(0, 1, suffix)


def text_bomb(path):
    """9,000 rows with a text of 1 MB, of which the file has one."""
    pq.write_table(tensors(9000, part=_words("x" * MIB, 9000)), sealed(path), compression="none")


def label_bomb(path):
    """One row with 9,000 labels of 1 MB."""
    labels = pa.ListArray.from_arrays(pa.array([0, 9000], pa.int32()), _words("x" * MIB, 9000))
    schema = stream_schema("tensors")
    at = schema.get_field_index("labels")
    table = tensors(1).set_column(at, "labels", labels)
    pq.write_table(table, sealed(path), compression="zstd")


def page_bomb(path):
    """Texts without a dictionary that zstd folds to nothing: 160 MiB."""
    with pq.ParquetWriter(
        sealed(path), stream_schema("tensors"), compression="zstd", use_dictionary=False
    ) as writer:
        piece = tensors(80, part="x" * MIB)
        writer.write_table(pa.concat_tables([piece] * 2).cast(stream_schema("tensors")))


def value_bomb(path):
    """One row with 20 million zeros."""
    values = _lists(pa.array(np.zeros(20_000_000, np.float32)), [20_000_000])
    pq.write_table(tensors(1, values=values, shape=[1, 20_000_000]), sealed(path), compression="zstd")


def row_bomb(path):
    """Rows that are all the same, of which the footer says that there are a hundred billion."""
    schema = pa.schema([field for field in stream_schema("tensors") if not pa.types.is_list(field.type)])
    piece = tensors(400_000).select(schema.names)
    with pq.ParquetWriter(sealed(path), piece.schema, compression="zstd") as writer:
        writer.write_table(piece)
    _lie_about_rows(sealed(path), 400_000, 100_000_000_000)


def _lie_about_rows(path, old, new):
    """Write another number of rows into a footer, where it has the same length."""
    data = bytearray(path.read_bytes())
    length = struct.unpack("<I", data[-8:-4])[0]
    foot = bytes(data[-8 - length : -8]).replace(_varint(2 * old), _varint(2 * new))
    path.write_bytes(bytes(data[: -8 - length]) + foot + struct.pack("<I", len(foot)) + b"PAR1")


def _varint(value):
    found = bytearray()
    while value >= 128:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def shape_that_lies(path):
    """Rows that say that they are small, with many values."""
    values = _lists(pa.array(np.random.default_rng(1).random(1_000_000, np.float32)), [50_000] * 20)
    pq.write_table(tensors(20, values=values, shape=[1, 1]), sealed(path))


def many_columns(path):
    """Three thousand columns."""
    table = pa.table({f"c{number}": pa.array([1], pa.int8()) for number in range(3000)})
    pq.write_table(table, sealed(path), compression="none", store_schema=False)


def footer_of_lists(path):
    """A footer of 20 MB that lists nothing but empty structs."""
    count = 20_000_000
    foot = b"\x15\x02\x19\xfc" + _varint(count) + b"\0" * count
    sealed(path).write_bytes(b"PAR1" + foot + struct.pack("<I", len(foot)) + b"PAR1")


def arrow_bomb(codec):
    """Zeros in the buffers of an Arrow stream: 160 MB of values in a few kB."""

    def write(path):
        values = _lists(pa.array(np.zeros(40_000_000, np.float32)), [40_000_000])
        table = tensors(1, values=values, shape=[1, 40_000_000]).cast(stream_schema("tensors"))
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with pa.ipc.new_stream(tail(path), table.schema, options=options) as writer:
            writer.write_table(table)

    write.__name__ = f"arrow_bomb_{codec}"
    return write


def arrow_length(path):
    """A compressed buffer that says that it unfolds to 2 TB."""
    arrow_bomb("zstd")(path)
    file = tail(path)
    file.write_bytes(file.read_bytes().replace(struct.pack("<q", 160_000_000), struct.pack("<q", 1 << 41)))


def moment_text_bomb(path):
    """Statistics with one text of 1 MB for each of 9,000 rows."""
    schema = stream_schema("moments")
    columns = []
    for field in schema:
        if field.name in ("name", "gradient_stage"):
            columns.append(_words("x" * MIB, 9000))
        elif field.name == "stat":
            columns.append(_words("grad", 9000))
        else:
            columns.append(pa.array(np.ones(9000), pa.float64()).cast(field.type))
    pq.write_table(pa.table(columns, names=schema.names), sealed(path, "moments"), compression="none")


BOMBS = [
    text_bomb,
    label_bomb,
    page_bomb,
    value_bomb,
    row_bomb,
    shape_that_lies,
    many_columns,
    footer_of_lists,
    arrow_bomb("lz4"),
    arrow_bomb("zstd"),
    arrow_length,
    moment_text_bomb,
]


def mutated_stream(data, number):
    """Return the bytes of a stream file with a few of them changed, more often where its headers are."""
    chance = random.Random(number)
    data = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        if len(data) < 16:
            break
        end = len(data)
        at = chance.choice((chance.randrange(end), end - 1 - min(end - 1, int(chance.expovariate(1 / 600)))))
        kind = chance.randrange(5)
        if kind == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[at : at + 8] = struct.pack("<q", chance.choice((-1, 1 << 31, 1 << 40, (1 << 63) - 1, 0)))
        elif kind == 2:
            data[at : at + 4] = b"\xff\xff\xff\x7f"
        elif kind == 3:
            del data[at : at + chance.randrange(1, 64)]
        else:
            data[at:at] = data[at : at + chance.randrange(1, 64)]
    return bytes(data)


def ask_everything(folder):
    """Ask a run all that the server asks of it; return for each question ``ok``, or the code of the typed error."""
    from megalens.runs import ClientError, RunFolder
    from megalens.runs.answers import StreamQuery, read_selection, tensor_index
    from megalens.runs.moments import MomentSource, RecordedRows

    cancelled = threading.Event()

    def stream(name):
        run = RunFolder(folder)
        found = read_selection(run, StreamQuery.of(run.streams, name, {}, 64 * MIB), cancelled)
        assert len(found.body) <= 64 * MIB, "the answer is longer than its limit"

    def moments():
        source = MomentSource(RecordedRows(folder))
        try:
            source.refresh()
            index = source.index()
            for stat in index["stats"]:
                source.rows([stat["stat"]], limit=1_000_000)
        finally:
            source.close()

    questions = {
        "status": lambda: json.dumps(RunFolder(folder).status(), allow_nan=False).encode(),
        "index": lambda: tensor_index(RunFolder(folder), cancelled),
        "moments": moments,
        **{name: lambda name=name: stream(name) for name in ("tensors", "scalars", "audit")},
    }
    answers = {}
    for question, ask in questions.items():
        try:
            ask()
            answers[question] = "ok"
        except ClientError as error:
            answers[question] = error.code
    return answers


def _most_held():
    """Return the most memory that this process held, KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def main():
    """Answer for every folder that is named."""
    import pyarrow.dataset  # noqa: F401

    from megalens.runs.moments import load_libraries

    load_libraries()
    told = []
    for folder in map(Path, sys.argv[1:]):
        limit = 4 << 30
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        # From here on the most that is held is counted anew; of a child the system counts what its parent held too.
        Path("/proc/self/clear_refs").write_text("5")
        begun, held = time.process_time(), _most_held()
        answers = ask_everything(folder)
        grown = _most_held() - held
        told.append(
            {"case": folder.name, "answers": answers, "seconds": time.process_time() - begun, "kib": grown}
        )
    print(json.dumps(told))


if __name__ == "__main__":
    main()
