"""A log of Transformer Engine's debug features that is nearly right."""

import tempfile
from pathlib import Path
from random import Random
from typing import Any

from megalens.runs import ClientError
from megalens.runs.inspect_logs import read_inspect_logs
from tests.fuzz.mutate import mutated_bytes
from tests.fuzz.surface import Surface, byte_changes

_FOLDER = Path(tempfile.mkdtemp())
_NAMES = (
    "layers.1.fc1_weight_mxfp8_mse",
    "layers.2.fc1_gradient_underflows%",
    "x_activation_std",
    "a_wgrad_mse",
)
_VALUES = ("0.0000", "12.5000", "nan", "-inf", "1e999", "1" * 40, "0x1p3")


def _seeds() -> list[Any]:
    return [
        [
            f"2026-01-02 03:04:05,678 - INFO - {name} \t\t iteration={step:06d} \t\t value={value}"
            for step in (1, 2)
            for name, value in zip(_NAMES, _VALUES, strict=False)
        ]
    ]


def _mutate(chance: Random, seed: Any) -> Any:
    lines = [line.replace("12.5000", chance.choice(_VALUES)) for line in seed]
    chance.shuffle(lines)
    data = "\n".join(lines).encode()
    return {"data": mutated_bytes(chance, data) if chance.random() < 0.7 else data}


def _run(given: Any) -> None:
    file = _FOLDER / "nvdlfw_inspect_globalrank-0.log"
    file.write_bytes(given["data"])
    rows = read_inspect_logs(file.parent, [file])
    assert all(table.num_rows >= 0 for tables in rows.streams.values() for table in tables)


def _every_byte() -> list[Any]:
    return [{"data": data} for data in byte_changes("\n".join(_seeds()[0][:2]).encode())]


SURFACE = Surface(_seeds, _mutate, _run, (ClientError,), _every_byte)
