"""A stream that no version of Megalens knows, as the fixtures announce it, and rows of it."""

import json
import math
from pathlib import Path

import pyarrow as pa

from megalens.protocol import Stream, encode_frame, parse_stream

ANNOUNCE = Path(__file__).parents[2] / "protocol" / "fixtures" / "messages" / "announce-streams.json"
DECLARED = json.loads(ANNOUNCE.read_text(encoding="utf-8"))["streams"]
NORMS: Stream = parse_stream("weight_norms", DECLARED["weight_norms"], strict=True)
NAMES = ("embedding", "lm_head")


def rows(step):
    """Return the rows of a step; the norm of lm_head is infinite at step 5."""
    return [
        {"step": step, "name": name, "value": math.inf if (step, place) == (5, 1) else step + place / 2}
        for place, name in enumerate(NAMES)
    ]


def norms(step, seq=0):
    """Return the frame of a step."""
    return encode_frame(NORMS, pa.Table.from_pylist(rows(step), NORMS.schema), step=step, seq=seq)
