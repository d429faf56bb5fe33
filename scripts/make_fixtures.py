"""Write the golden messages and frames that pytest and jest both decode and re-encode.

Run from the root of a checkout: ``python scripts/make_fixtures.py``. The frames hold a fixed time, so that running it
again changes nothing unless the contract changed; ``--check`` says so instead of writing.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pyarrow as pa

from megalens.protocol import encode_frame, encode_message, stream_schema
from scripts.frame_fixtures import frame_cases
from scripts.message_fixtures import message_cases
from scripts.moment_fixtures import merge_cases, name_cases, raw_cases
from scripts.moment_group_cases import group_cases
from scripts.pattern_cases import pattern_cases
from scripts.plan_cases import plan_cases
from scripts.projection_cases import projection_cases
from scripts.rank_map_cases import rank_map_cases
from scripts.trend_fixtures import trend_cases

ROOT = Path(__file__).parents[1] / "protocol" / "fixtures"
TIME_US = 1_790_000_000_123_456


def rows_as_json(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    def plain(value: object) -> object:
        if isinstance(value, list):
            return [plain(item) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        if value == 0 and isinstance(value, float) and math.copysign(1, value) < 0:
            return "-0"
        return value

    return [{name: plain(value) for name, value in row.items()} for row in rows]


def contents() -> dict[str, bytes]:
    """Every fixture file by its path under ``protocol/fixtures``."""
    files: dict[str, bytes] = {}
    for name, (stream, rows, header) in frame_cases().items():
        table = pa.Table.from_pylist(rows, schema=stream_schema(stream))
        files[f"frames/{name}.frame"] = encode_frame(stream, table, time_us=TIME_US, **header)
        # float32 columns: the JSON holds what the frame holds, not what was typed above.
        described = {
            "stream": stream,
            "seq": header["seq"],
            "step": header["step"],
            "time_us": TIME_US,
            "bits": header.get("bits", 0),
            "rows": rows_as_json(table.to_pylist()),
        }
        files[f"frames/{name}.json"] = (json.dumps(described, indent=2, ensure_ascii=False) + "\n").encode()
    for name, message in message_cases().items():
        encode_message(message)
        files[f"messages/{name}.json"] = (json.dumps(message, indent=2, ensure_ascii=False) + "\n").encode()
    for name, cases in (
        ("merge", merge_cases()),
        ("raw", raw_cases()),
        ("names", name_cases()),
        ("groups", group_cases()),
    ):
        files[f"moments/{name}.json"] = (json.dumps(cases, indent=1, ensure_ascii=False) + "\n").encode()
    files["whole-tensors.json"] = (json.dumps(trend_cases(), indent=1, ensure_ascii=False) + "\n").encode()
    files["plans.json"] = (json.dumps(plan_cases(), indent=1) + "\n").encode()
    files["projection.json"] = (json.dumps(projection_cases()) + "\n").encode()
    # A case a line: there are hundreds.
    for name, cases in (("patterns", pattern_cases()), ("rank-maps", rank_map_cases())):
        lines = ",\n".join(json.dumps(case) for case in cases)
        files[f"{name}.json"] = f"[\n{lines}\n]\n".encode()
    return files


def main() -> int:
    changed = [path for path, data in contents().items() if not _same(ROOT / path, data)]
    if "--check" in sys.argv[1:]:
        print("\n".join(f"{path} would change: run python scripts/make_fixtures.py" for path in changed))
        return 1 if changed else 0
    for path, data in contents().items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_bytes(data)
    print(f"{len(changed)} of {len(contents())} fixtures changed")
    return 0


def _same(path: Path, data: bytes) -> bool:
    return path.is_file() and path.read_bytes() == data


if __name__ == "__main__":
    sys.exit(main())
