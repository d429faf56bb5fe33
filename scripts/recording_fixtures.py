"""The golden recordings: one in segments, of those from before there were segments one that grows and the same one packed, and one whose training went back to a checkpoint."""

from __future__ import annotations

import json
from typing import Any

from scripts.golden_recording import Rows, growing_file, packed_file, sealed_file, tail_file

__all__ = ["recorded_frames", "recording_files"]

_STARTED = 1.79e9


def recorded_frames() -> dict[str, list[Rows]]:
    """Return of each stream the frames that were recorded, by rows."""
    return {
        "tensors": [
            *(_tensors(step) for step in (1, 2)),
            [*_tensors(3), _tokens(3)],
            # Of two steps, as a producer without viewers sends them.
            _tensors(4) + _tensors(5),
        ],
        "scalars": [_losses(step) for step in range(1, 6)],
    }


def recording_files() -> dict[str, bytes]:
    """Return the files by their path under ``recordings``."""
    frames = recorded_frames()
    files = {"growing/run.json": _run(frames, state="training", ended=None)}
    files["segments/run.json"] = files["growing/run.json"]
    files["finished/run.json"] = _run(frames, state="finished", ended=_STARTED + 5)
    for stream, each in frames.items():
        files[f"growing/{stream}.arrows"], files[f"growing/{stream}.index"] = growing_file(stream, each)
        files[f"finished/{stream}.parquet"] = packed_file(stream, each)
        # Two sealed segments, one of them beside its tail, which nobody removed yet, and the tail of what is newer.
        parts = [each[:2], each[2:3], each[3:]]
        for number, part in enumerate(parts):
            place = f"segments/{stream}/{number:06d}-step-{part[0][0]['step']}"
            if part is not parts[-1]:
                files[f"{place}.parquet"] = sealed_file(stream, part)
            if number:
                files[f"{place}.arrows"] = tail_file(stream, part)
    # Four steps, back to the checkpoint after the second, and three more.
    first = {"scalars": [_losses(step) for step in range(1, 5)]}
    again = {"scalars": [_losses(step, better=0.5) for step in range(3, 6)]}
    files["went-back/run.json"] = _run(again, state="finished", ended=_STARTED + 9)
    files["went-back/scalars.parquet"] = packed_file("scalars", again["scalars"])
    attempt = {"state": "lost", "ended": _STARTED + 4, "superseded_from": 3}
    files["went-back/attempts/1/run.json"] = _run(first, attempt=1, **attempt)
    files["went-back/attempts/1/scalars.parquet"] = packed_file("scalars", first["scalars"])
    return files


def _tensor(**changes: object) -> dict[str, object]:
    row: dict[str, object] = {
        "step": 7,
        "micro_batch": 0,
        "phase": "train",
        "pass": "forward",
        "rank": 0,
        "layer": 0,
        "flag": "MLP1_mat_mul",
        "part": "",
        "compressor": "Tile(tiles=3, reduction='mean')",
        "source_shape": [2, 2, 8],
        "shape": [1, 2, 3],
        "values": [0.5, -1.25, 3.0, 0.0, 1e-30, -65504.0],
        "labels": [],
        "nan_count": 0,
        "inf_count": 0,
    }
    return row | changes


def _tensors(step: int) -> Rows:
    return [_tensor(step=step, layer=layer, values=[step + layer / 8] * 6) for layer in (0, 1)]


def _tokens(step: int) -> dict[str, Any]:
    read = {"source_shape": [2, 2], "shape": [1, 2], "values": [104.0, 233.0], "labels": ["h", "é"]}
    return _tensor(step=step, layer=-1, flag="InputTokens", part="ids", compressor="NoOp()", **read)


def _losses(step: int, better: float = 0.0) -> Rows:
    common = {"step": step, "time": _STARTED + step, "rank": 0}
    rows = [{**common, "name": "loss", "value": 4 / step - better, "unit": "nats/byte"}]
    # Not at every step, and once not finite.
    if step % 2:
        rows.append(
            {**common, "name": "grad_norm", "value": float("inf") if step == 3 else 0.5 * step, "unit": ""}
        )
    return rows


def _run(frames: dict[str, list[Rows]], *, attempt: int | None = None, **more: Any) -> bytes:
    run_id = "20260921-120000-golden-1a2b"
    layers = list(range(2))
    flag = {"name": "MLP1_mat_mul", "title": "MLP1 output", "layers": layers, "parts": [""]}
    described = {
        "format": 2,
        "run": {
            "id": run_id if attempt is None else f"{run_id}.attempt-{attempt}",
            "name": "golden",
            "started": _STARTED,
        },
        "model": {"name": "GPT", "layers": 2, "hidden": 8, "heads": 2},
        "layout": {"world_size": 1, "tp": 1, "pp": 1, "dp": 1},
        "flags": [{**flag, "axes": ["position", "feature"], "bytes_per_layer": None}],
        "compressors": [],
        "config": {"flags": {}},
        "versions": {"megalens": "0.1.0"},
        "streams": {name: _summary(each) for name, each in frames.items()},
        "missing_steps": [],
        **more,
    }
    return (json.dumps(described, indent=1) + "\n").encode()


def _summary(frames: list[Rows]) -> dict[str, int]:
    steps = [row["step"] for rows in frames for row in rows]
    return {"rows": len(steps), "bytes": 0, "first_step": min(steps), "last_step": max(steps)}
