"""A direction that a kernel saves is what the training adds and projects on."""

import numpy as np
import pytest
import torch
from safetensors import safe_open

import megalens
from megalens import AddVector, ClientError, Projection, save_direction
from megalens.tracer.vectors import load_vectors


@pytest.mark.parametrize(
    "vectors",
    [
        np.arange(1.0, 9.0),
        np.random.default_rng(0).normal(size=(3, 8)),
        [[1, 2], [3, 4], [5, 6]],
        torch.randn(3, 8, requires_grad=True).bfloat16(),
        np.random.default_rng(0).normal(size=(8, 3)).T,
    ],
    ids=["one", "layers", "lists", "tensor", "turned"],
)
def test_what_is_saved_is_read_as_it_was(tmp_path, vectors) -> None:
    path = save_direction(tmp_path / "d.safetensors", vectors, {"from": "lasso", "tokens": 12})
    wide = vectors.detach().float().numpy() if isinstance(vectors, torch.Tensor) else np.asarray(vectors)
    with safe_open(path, "np") as file:
        assert file.metadata() == {"made_by": "megalens", "from": "lasso", "tokens": "12"}
        assert np.array_equal(file.get_tensor("vectors"), wide.astype(np.float32))
    read = load_vectors("d.safetensors", [tmp_path], layers=3, features=[wide.shape[-1]], unit=False)
    assert np.array_equal(read[:, 0].numpy(), np.broadcast_to(wide, (3, wide.shape[-1])).astype(np.float32))


@pytest.mark.parametrize(
    ("name", "vectors", "says"),
    [
        ("d.npy", [1.0], "path=… must be a file name that ends in .safetensors, got 'd.npy'"),
        ("d.safetensors", 1.0, "vectors=… must be [hidden] or [layers, hidden], got []"),
        ("d.safetensors", np.ones((2, 2, 2)), "[layers, hidden], got [2, 2, 2]"),
        ("d.safetensors", [], "[layers, hidden], got [0]"),
        ("d.safetensors", ["a"], "vectors=… must be numbers"),
        ("d.safetensors", [[1.0], [1.0, 2.0]], "vectors=… must be numbers"),
        ("d.safetensors", [1.0, np.nan], "finite float32 numbers"),
        ("d.safetensors", [1e300], "finite float32 numbers"),
    ],
)
def test_what_is_no_direction_is_refused_and_nothing_is_written(tmp_path, name, vectors, says) -> None:
    with pytest.raises(ClientError) as caught:
        save_direction(tmp_path / name, vectors)
    assert says in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_it_is_named_by_what_reads_it() -> None:
    assert megalens.save_direction is save_direction
    assert str(Projection("d.safetensors")) == "Projection(vectors='d.safetensors')"
    assert AddVector("d.safetensors", -2.0).to_setting()["params"]["vectors"] == "d.safetensors"
