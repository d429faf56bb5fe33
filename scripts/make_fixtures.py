"""Write the golden files that pytest and jest both read: what the product must read, write and compute.

Run from the root of a checkout: ``python -m scripts.make_fixtures``. What is written follows ``protocol/README.md`` and the JSON beside it, by
pyarrow, numpy and exact fractions, and nothing of it by the product. Frames hold a fixed time, so that running it again changes nothing unless
the contract changed; ``--check`` says so instead of writing. Other versions of pyarrow may write the same rows in other bytes, which are let be.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from scripts.golden_files import (
    arrow_table,
    frame_bytes,
    frame_parts,
    index_entries,
    read_rows,
    recorded_frames,
    recording_files,
    rows_as_json,
    rows_of_json,
)
from scripts.hand_cases import hand_cases
from scripts.message_fixtures import message_cases
from scripts.moment_fixtures import merge_cases, name_cases, raw_cases, trend_cases
from scripts.moment_group_cases import group_cases
from scripts.pattern_cases import pattern_cases
from scripts.plan_cases import plan_cases, rank_map_cases
from scripts.projection_cases import projection_cases
from scripts.request_cases import request_cases

PROTOCOL = Path(__file__).parents[1] / "protocol"
ROOT = PROTOCOL / "fixtures"


def contents() -> dict[str, bytes]:
    """Every fixture file by its path under ``protocol/fixtures``."""
    schema = json.loads((PROTOCOL / "messages.schema.json").read_text(encoding="utf-8"))
    run_file = Draft202012Validator({"$defs": schema["$defs"], "$ref": "#/$defs/RunFile"})
    files = {f"recordings/{path}": data for path, data in recording_files().items()}
    for path, data in files.items():
        if path.endswith("run.json"):
            run_file.validate(json.loads(data))
    rows = {
        name: rows_as_json(arrow_table(name, [row for frame in frames for row in frame]))
        for name, frames in recorded_frames().items()
    }
    files["recordings/rows.json"] = _json(rows)
    # What a frame holds is written by hand in the JSON beside it.
    for path in sorted((ROOT / "frames").glob("*.json")):
        case = json.loads(path.read_text(encoding="utf-8"))
        stream, bits = case["stream"], case["bits"]
        table = arrow_table(stream, rows_of_json(stream, case["rows"]))
        header = {name: case[name] for name in ("seq", "step", "time_us")}
        data = frame_bytes(stream, table, **header, caught_up=bool(bits & 1), merged=bool(bits & 2))
        files[f"frames/{path.stem}.frame"] = data
    for name, message in message_cases().items():
        Draft202012Validator(schema).validate(message)
        files[f"messages/{name}.json"] = _json(message)
    files |= {path: _json(cases) for path, cases in hand_cases(ROOT).items()}
    for name, cases in (
        ("moments/merge", merge_cases()),
        ("moments/raw", raw_cases()),
        ("moments/names", name_cases()),
        ("moments/groups", group_cases()),
        ("whole-tensors", trend_cases()),
        ("plans", plan_cases()),
    ):
        files[f"{name}.json"] = _json(cases, indent=1)
    files["projection.json"] = (json.dumps(projection_cases()) + "\n").encode()
    # A case a line: there are hundreds.
    for name, cases in (
        ("patterns", pattern_cases()),
        ("rank-maps", rank_map_cases()),
        ("requests", request_cases(PROTOCOL)),
    ):
        lines = ",\n".join(json.dumps(case) for case in cases)
        files[f"{name}.json"] = f"[\n{lines}\n]\n".encode()
    return files


def main() -> int:
    files = contents()
    if any(name.partition(".")[0] == "megalens" for name in sys.modules):
        print("A golden file proves nothing where the product helps to write it: megalens was imported.")
        return 1
    changed = [path for path, data in files.items() if not _same(ROOT / path, data)]
    if "--check" in sys.argv[1:]:
        print("\n".join(f"{path} would change: run python -m scripts.make_fixtures" for path in changed))
        return 1 if changed else 0
    for path in changed:
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_bytes(files[path])
    print(f"{len(changed)} of {len(files)} fixtures changed")
    return 0


def _json(value: Any, indent: int = 2) -> bytes:
    return (json.dumps(value, indent=indent, ensure_ascii=False) + "\n").encode()


def _same(path: Path, data: bytes) -> bool:
    if not path.is_file():
        return False
    there = path.read_bytes()
    return there == data or _meaning(path, there) == _meaning(path, data)


def _meaning(path: Path, data: bytes) -> Any:
    """What a file says: another version of Arrow may write the same in other bytes, and a hand another JSON."""
    if path.suffix == ".frame":
        header, table = frame_parts(data)
        return header, rows_as_json(table)
    if path.suffix in (".arrows", ".parquet"):
        return read_rows(path.name, data)
    return index_entries(data) if path.suffix == ".index" else json.loads(data)


if __name__ == "__main__":
    sys.exit(main())
