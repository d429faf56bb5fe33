"""Megatron-Core's GPT really trains in several processes, and what is traced is what one process has."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import run_job
from rows import compare, finished, rows_of
from safetensors.numpy import save_file
from shape import LAYOUTS, MICRO_BATCHES, Shape

# The first one of them waits for Megatron-Core to be imported.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# What they cut is cut in "full recompute, four processes" too, and by "tensor parallel" and pipelines alone.
PARTS_OF_OTHERS = ("sequence parallel", "tensor and pipeline parallel")

Expected = dict[tuple[int, int, str, int, str], np.ndarray]


@functools.cache
def alone(shape: Shape) -> tuple[Expected, list[float], Expected]:
    """What one process has, its losses, and the gradients of what it has."""
    return run_job(1, "megatron_reference:reference", shape.alone())[0]


def same_losses(losses: list[list[float | None]], shape: Shape) -> None:
    """The mean over the replicas is the loss of one process, to four digits, and it falls."""
    last = [of_rank for of_rank in losses if of_rank[0] is not None]
    assert len(last) == shape.tp * shape.dp
    means = [sum(of_step) / len(last) for of_step in zip(*last, strict=True)]
    assert means == pytest.approx(alone(shape.alone())[1], rel=1e-4)
    assert means[-1] < means[0]


def setting(compressor: dict[str, Any]) -> dict[str, Any]:
    return {"compressor": compressor, "samples": None, "replicas": "all"}


def with_gradients(flags: dict[str, Any]) -> dict[str, Any]:
    """Trace the gradients of what has them too."""
    both = {"passes": ["forward", "backward"]}
    return {name: {**one, **({} if name == "InputTokens" else both)} for name, one in flags.items()}


def tiles(count: int) -> Callable[[np.ndarray, int], np.ndarray]:
    """The mean of each of at most so many tiles, the last one being what is left."""

    def compress(data: np.ndarray, layer: int) -> np.ndarray:
        width = -(-data.shape[-1] // count)
        cuts = range(0, data.shape[-1], width)
        return np.stack([data[..., cut : cut + width].mean(-1) for cut in cuts], -1)

    return compress


def whole(data: np.ndarray, layer: int) -> np.ndarray:
    return data


def every_flag(shape: Shape, compressor: dict[str, Any]) -> dict[str, Any]:
    return {flag: setting(compressor) for flag in {key[2] for key in expected(shape)}}


def expected(shape: Shape) -> Expected:
    """What one process has."""
    return alone(shape.alone())[0]


@pytest.mark.parametrize("layout", [each for each in LAYOUTS if each not in PARTS_OF_OTHERS])
def test_every_flag_of_a_layout_is_what_one_process_has(layout: str, tmp_path: Path) -> None:
    shape = LAYOUTS[layout]
    settings = {"whole": with_gradients(every_flag(shape, {"name": "NoOp"}))}
    losses, said = zip(
        *run_job(shape.processes, "megatron_work:traced", shape, tmp_path, settings), strict=True
    )
    same_losses([of_rank[0] for of_rank in losses], shape)
    assert [status["warnings"] for of_rank in said for status in of_rank] == [[]] * shape.processes
    run, share = finished(tmp_path / "whole"), MICRO_BATCHES // shape.dp
    compare(rows_of(run, share), expected(shape), whole)
    # Megatron divides a loss by the micro-batches of its own replica.
    gradients = {key: data for key, data in alone(shape.alone())[2].items() if key in expected(shape)}
    least = min(float(np.abs(data).max()) for data in gradients.values())
    scaled = lambda data, layer: data * shape.dp  # noqa: E731
    compare(rows_of(run, share, "backward"), gradients, scaled, tolerance=1e-3 * least)


@pytest.mark.parametrize(
    ("layout", "flag", "words"),
    [
        ("experts on two ranks", "MLP1_mat_mul", "Layer 0 is a mixture of experts"),
    ],
)
def test_a_flag_that_a_layout_cannot_have_says_why(layout: str, flag: str, words: str) -> None:
    shape = LAYOUTS[layout]
    for reasons in run_job(shape.processes, "megatron_work:reasons", shape):
        assert words in reasons.pop(flag)
        assert reasons == {}


@pytest.mark.parametrize(
    "layout",
    [
        "tensor parallel",
        "SwiGLU, sequence parallel",
        "fewer query groups than ranks",
    ],
)
def test_every_compressor_gives_what_it_gives_of_the_whole_tensor(layout: str, tmp_path: Path) -> None:
    shape = LAYOUTS[layout]
    vectors = np.random.default_rng(0).normal(size=(shape.layers, 3, shape.hidden)).astype(np.float32)
    save_file({"vectors": vectors}, tmp_path / "vectors.safetensors")
    unit = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    tile = {name: {"name": "Tile", "params": {"tiles": n}} for name, n in (("even", 8), ("odd", 5))}
    project = setting({"name": "Projection", "params": {"vectors": "vectors.safetensors"}})
    wanted = {key: data for key, data in expected(shape).items() if key[2] != "InputTokens"}
    projected = ("HiddenStates", "MLP2_mat_mul", "AttentionOutput_mat_mul", "ContextLayer_mat_mul")
    settings = {name: every_flag(shape, compressor) for name, compressor in tile.items()}
    for flags in settings.values():
        del flags["InputTokens"]
    settings["projection"] = dict.fromkeys(projected, project)
    run_job(shape.processes, "megatron_work:traced", shape, tmp_path, settings)
    share = MICRO_BATCHES // shape.dp
    even, odd, projections = (
        rows_of(finished(tmp_path / name), share) for name in ("even", "odd", "projection")
    )
    compare(even, wanted, tiles(8))
    compare(odd, wanted, tiles(5))
    seen = {key: data for key, data in wanted.items() if key[2] in projected}
    compare(projections, seen, lambda data, layer: data @ unit[layer].T)
    # What a compressor loses is measured of the whole tensor, wherever its pieces lie.
    for rows, n in ((even, 8), (odd, 5)):
        same_errors(rows, wanted, lambda data, layer, n=n: rebuilt(data, n))
    spans = [np.linalg.pinv(of_layer) @ of_layer for of_layer in vectors]
    same_errors(projections, seen, lambda data, layer: data @ spans[layer])


def rebuilt(data: np.ndarray, count: int) -> np.ndarray:
    """Each tile's mean in the place of its values."""
    means, width = tiles(count)(data, 1), math.ceil(data.shape[-1] / count)
    return means.repeat(width, -1)[..., : data.shape[-1]]


def same_errors(
    rows: dict[Any, dict[str, Any]], wanted: Expected, rebuild: Callable[[np.ndarray, int], np.ndarray]
) -> None:
    first = min(step for step, *_ in rows)
    assert not any(math.isnan(row["compression_error"]) for key, row in rows.items() if key[0] == first)
    for key, row in rows.items():
        if key[0] == first:
            data = wanted[key].astype(np.float64)
            lost = np.linalg.norm(data - rebuild(data, key[3])) / np.linalg.norm(data)
            assert row["compression_error"] == pytest.approx(lost, rel=1e-3), key
