"""Vector files that a viewer names: ``.npy``, ``.safetensors`` and weights-only ``.pt``, and the names themselves."""

import io
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from megalens.protocol import ProtocolError, encode_message
from megalens.tracer.vectors import load_vectors
from tests.fuzz.mutate import hostile_text, mutated_bytes
from tests.fuzz.surface import Surface, byte_changes

_FOLDER = Path(tempfile.mkdtemp())


def _torch_file(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def _seeds() -> list[Any]:
    array = np.arange(12, dtype=np.float32).reshape(3, 4) + 1
    tensor = torch.from_numpy(array)
    file = io.BytesIO()
    np.save(file, array)
    nested = {"vectors": {"vectors": tensor}}
    return [
        *(
            ["v.npy", file.getvalue()],
            ["v.safetensors", save({"vectors": tensor})],
            ["v.pt", _torch_file(tensor)],
        ),
        *(
            ["v.pt", _torch_file(each)]
            for each in (
                {"vectors": tensor},
                nested,
                tensor.as_strided((3, 10**9), (0, 0)),
                [tensor],
                tensor.half(),
            )
        ),
    ]


def _mutate(chance: Random, seed: Any) -> Any:
    name, data = seed
    if chance.random() < 0.05:
        name = hostile_text(chance) + chance.choice(("", ".npy"))
    spots = (range(min(200, len(data))), range(max(0, len(data) - 200), len(data)))
    return [name, mutated_bytes(chance, data, spots) if chance.random() < 0.9 else data]


def _run(given: Any) -> None:
    name, data = given
    (
        _FOLDER / f"v.{name.rpartition('.')[2]}"
        if name.startswith("v.") and "/" not in name
        else _FOLDER / "v.npy"
    ).write_bytes(data)
    try:
        vectors = load_vectors(name, [_FOLDER], layers=3, features=(4,))
    except ProtocolError as error:
        encode_message(error.to_message()).encode("utf-8")
        if str(_FOLDER) in error.message:
            raise AssertionError("a viewer is told the folder") from error
        raise
    assert vectors.shape[0] == 3
    assert vectors.shape[2] == 4


def _every_byte() -> list[Any]:
    # One of each format, and a dictionary of tensors.
    return [[name, data] for name, seed in _seeds()[:4] for data in byte_changes(seed)]


SURFACE = Surface(_seeds, _mutate, _run, (ProtocolError,), _every_byte)
