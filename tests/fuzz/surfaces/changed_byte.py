"""One byte changed in a small recording of each format: everything that is asked of a run is answered or refused."""

from __future__ import annotations

import io
import json
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from recorded_moments import moment_table

from megalens.protocol import STREAMS, ProtocolError, segment_name
from megalens.runs import ClientError, open_run
from megalens.runs.answers import RunAnswers
from tests.fuzz.surface import Surface

__all__ = ["CHANGES", "SURFACE", "all_changes", "small_recordings"]

CHANGES = (0x01, 0x80, 0xFF)
_FOLDER = Path(tempfile.mkdtemp())
_GOLDEN = Path(__file__).parents[3] / "protocol/fixtures/recordings"


@cache
def small_recordings() -> dict[str, dict[str, bytes]]:
    """Return the files of recordings, by a name of their format: the golden ones, and statistics in each form."""
    found = {form.name: _files(form) for form in sorted(_GOLDEN.iterdir()) if form.is_dir()}
    header = {"run.json": found["finished"]["run.json"]}
    old = {"run.json": json.dumps({**json.loads(header["run.json"]), "format": 1}).encode()}
    now = moment_table(range(1, 3), names=["a", "b"])
    before = _as_before("moments", now)
    packed = {
        f"{stream}.parquet": _parquet(
            _as_before(stream, pq.read_table(io.BytesIO(found["finished"][f"{stream}.parquet"])))
        )
        for stream in ("scalars", "tensors")
    }
    sealed, tail = (f"moments/{segment_name(*each)}" for each in ((0, 1, ".parquet"), (1, 1, ".arrows")))
    return {
        **found,
        "format 1": {**old, **packed},
        "statistics": {**header, sealed: _parquet(now), tail: _arrows(now)},
        "statistics of before": {**header, "moments.parquet": _parquet(before)},
        "statistics of before, growing": {**header, "moments.arrows": _arrows(before)},
    }


def all_changes(change: int | None = None) -> list[Any]:
    """Return the inputs that change each byte once; which way goes by its place, unless it is said."""
    return [
        [form, name, at, CHANGES[at % len(CHANGES)] if change is None else change]
        for form, files in small_recordings().items()
        for name, data in files.items()
        if not name.endswith(".index")
        for at in range(len(data))
    ]


def _as_before(stream: str, table: pa.Table) -> pa.Table:
    """Return rows as they were recorded before columns were added."""
    return table.drop_columns([name for name in table.column_names if name in STREAMS[stream].absent])


def _files(folder: Path) -> dict[str, bytes]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def _arrows(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    return sink.getvalue()


def _mutate(chance: Random, seed: Any) -> Any:
    form, name = seed
    return [form, name, chance.randrange(len(small_recordings()[form][name])), chance.randrange(1, 256)]


def _run(given: Any) -> None:
    form, name, at, change = given
    files = small_recordings()[form]
    place = _FOLDER / form
    if not place.is_dir():
        for other, data in files.items():
            (place / other).parent.mkdir(parents=True, exist_ok=True)
            (place / other).write_bytes(data)
    changed = bytearray(files[name])
    changed[at] ^= change
    # Another file each time: what is known of one by its inode and time is not known of the next.
    (place / name).unlink()
    (place / name).write_bytes(changed)
    try:
        _ask(place, "moments" if name.startswith("moments") else name.removeprefix("attempts/1/")[:7])
    finally:
        (place / name).unlink()
        (place / name).write_bytes(files[name])


def _ask(place: Path, stream: str) -> None:
    """Ask what is asked of a run of which one file may be damaged; raises the first refusal when all was asked."""
    wrong: list[BaseException] = []
    with open_run(place) as run:
        asked = RunAnswers(run)
        questions: list[Any] = [lambda: json.dumps(asked.detail(), allow_nan=False), lambda: run.audit()]
        if stream in ("moments", "run.jso"):
            rows = {"stats": ["param", "grad"], "steps": [1, 4]}
            groups = {"stat": "param", "statistic": "std", "by": ["name"]}
            questions += [
                lambda: json.dumps(asked.moments_index(), allow_nan=False),
                lambda: asked.answer("moments_rows", {"request": rows}),
                lambda: asked.answer("moments_groups", {"request": groups}),
                lambda: run.moments("grad", by="name"),
                lambda: run.table("moments"),
            ]
        if stream in ("tensors", "run.jso"):
            lines = {"flag": "MLP1_mat_mul", "rank": "lowest", "statistic": "mean", "points": 50}
            chosen = {"flag": "MLP1_mat_mul", "steps": [2, 9]}
            questions += [
                asked.index,
                lambda: asked.answer("stream", {"stream": "tensors", "request": chosen}),
                lambda: asked.answer("tensor_lines", {"request": lines}),
                lambda: run.table("tensors").to_pylist(),
                lambda: run.array("MLP1_mat_mul", layer=1, step=2),
            ]
        if stream in ("scalars", "run.jso"):
            questions += [
                lambda: asked.answer("stream", {"stream": "scalars", "request": {}}),
                lambda: asked.answer("scalar_lines", {"request": {"steps": [2, 4]}}),
                lambda: run.table("scalars").to_pylist(),
                lambda: run.scalars("loss", steps="1-3"),
            ]
        for question in questions:
            try:
                question()
            except (ClientError, ProtocolError) as error:
                wrong.append(error)
    if wrong:
        raise wrong[0]


def _seeds() -> list[Any]:
    return [
        [form, name]
        for form, files in small_recordings().items()
        for name in files
        if not name.endswith(".index")
    ]


SURFACE = Surface(_seeds, _mutate, _run, (ClientError, ProtocolError), all_changes)
