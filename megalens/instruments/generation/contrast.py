"""Directions of a trait in the residual stream, one a layer, from prompts with and without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...tracer.errors import TracerError
from ...tracer.points import IAdapter, ModelPoints
from .hidden import HiddenStates, watched_points
from .language_model import evaluating

Prompt = str | Sequence[int] | Tensor
Positions = str | int | slice | Sequence[int] | Callable[[Tensor], Tensor]
"""``"all"``, ``"last"``, a position, a slice, positions, or a function of ids ``[S]`` to either or a mask."""


def contrast_vectors(
    model: nn.Module,
    positive: Iterable[Prompt],
    negative: Iterable[Prompt],
    *,
    positions: Positions = "all",
    tokenizer: Any = None,
    adapter: IAdapter | None = None,
    batch: int = 16,
) -> Tensor:
    """Return the difference of mean hidden states, layer by layer: mean over ``positive`` minus mean over
    ``negative``.

    This is how persona vectors are taken (Chen, Arditi, Sleight, Evans and Lindsey, "Persona vectors:
    monitoring and controlling character traits in language models", arXiv 2507.21509, 2025, section 2), and
    steering vectors before them (Rimsky et al., "Steering Llama 2 via contrastive activation addition", arXiv
    2312.06681, 2023). A prompt's states are averaged over the chosen positions first, so that each prompt
    counts alike, long or short. The direction is the one along which the means of the groups differ; what
    else differs between the prompts is in it too, so let them differ in the trait alone.

    Parameters
    ----------
    model : torch.nn.Module
        Any model that :func:`megalens.trace` can trace. It runs without gradients in evaluation mode, which
        is reset after.
    positive, negative : iterable of str, of ids or of tensors
        Prompts; text needs a ``tokenizer``. Prompts of one length are run together, so none is ever padded.
    positions : Positions
        Which positions are averaged.
    tokenizer : optional
        Anything with ``encode(text)``.
    adapter : IAdapter, optional
        As in :func:`megalens.trace`.
    batch : int
        At most this many prompts at once.

    Returns
    -------
    torch.Tensor
        float32 ``[layers, hidden]`` on the CPU, not scaled: its length is the distance of the groups.
        :class:`Projection` scales to length one itself.

    Raises
    ------
    TracerError
        When a group is empty, a prompt has no such positions, a process has some of the layers only, or a
        state is not finite.
    """
    if batch < 1:
        raise TracerError(f"batch must be a whole number from 1, got {batch!r:.50}.")
    points = watched_points(model, adapter)
    sources = points.flags["HiddenStates"].outputs
    if sorted(sources) != list(range(points.layers)):
        raise TracerError(
            f"Every layer's hidden states are needed, and this process has those of {len(sources)} out of "
            f"{points.layers}. Build the vectors in one process."
        )
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    groups = [
        [_ids(prompt, tokenizer, name, number) for number, prompt in enumerate(prompts)]
        for name, prompts in (("positive", positive), ("negative", negative))
    ]
    for name, prompts in zip(("positive", "negative"), groups, strict=True):
        if not prompts:
            raise TracerError(f"At least one {name} prompt is needed, got none.")
    with evaluating(model), torch.no_grad():
        first, second = (_mean_states(points, prompts, positions, batch, device) for prompts in groups)
    vectors = (first - second).float()
    if not bool(torch.isfinite(vectors).all()):
        raise TracerError("The hidden states of some prompts are not finite, so no direction can be told.")
    return vectors


def save_vectors(path: str | Path, vectors: Tensor, metadata: Mapping[str, Any] | None = None) -> Path:
    """Write vectors to a ``.safetensors`` file for ``Projection`` and ``AddVector``.

    Parameters
    ----------
    path : str or Path
        The file; its folder must be among the ``vectors_folders`` of :func:`megalens.trace`.
    vectors : torch.Tensor
        ``[layers, features]`` or ``[layers, vectors, features]``.
    metadata : mapping, optional
        A description, stored in the file as text.

    Raises
    ------
    TracerError
        When the tensor has another shape, or the name another ending.
    """
    from safetensors.torch import save_file

    path = Path(path)
    if path.suffix != ".safetensors":
        raise TracerError(f"The file's name must end in .safetensors, got {path.name!r:.200}.")
    if vectors.ndim not in (2, 3) or vectors.numel() == 0:
        raise TracerError(
            f"vectors must be [layers, features] or [layers, vectors, features], got {list(vectors.shape)}."
        )
    notes = {str(key): str(value) for key, value in (metadata or {}).items()}
    save_file(
        {"vectors": vectors.detach().float().cpu().contiguous()}, path, {"made_by": "megalens", **notes}
    )
    return path


def _ids(prompt: Prompt, tokenizer: Any, group: str, number: int) -> Tensor:
    if isinstance(prompt, str):
        if not callable(getattr(tokenizer, "encode", None)):
            raise TracerError("Prompts are text, so a tokenizer with encode(text) is needed: tokenizer=…")
        prompt = tokenizer.encode(prompt)
    try:
        ids = torch.as_tensor(prompt).detach().long().flatten()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TracerError(f"Prompt {number} of {group} is neither text nor ids: {prompt!r:.100}") from error
    if not ids.numel():
        raise TracerError(f"Prompt {number} of {group} is empty.")
    return ids


def _mean_states(
    points: ModelPoints,
    prompts: Sequence[Tensor],
    positions: Positions,
    batch: int,
    device: torch.device,
) -> Tensor:
    """Return the mean over prompts of the mean over positions, float64 ``[layers, hidden]``."""
    by_length: dict[int, list[Tensor]] = {}
    for ids in prompts:
        by_length.setdefault(len(ids), []).append(ids)
    total: Tensor | None = None
    for alike in by_length.values():
        for start in range(0, len(alike), batch):
            ids = torch.stack(alike[start : start + batch])
            weights = torch.stack([_weights(row, positions) for row in ids])
            states = _states(points, ids.to(device))
            summed = torch.stack([(weights.to(x.device)[..., None] * x).sum((0, 1)).cpu() for x in states])
            total = summed if total is None else total + summed
    assert total is not None
    return total / len(prompts)


def _weights(ids: Tensor, positions: Positions) -> Tensor:
    """Return float64 ``[S]`` that sums to 1 over the chosen positions."""
    asked: Any = positions(ids) if callable(positions) else positions
    where = {"all": slice(None), "last": -1}.get(asked) if isinstance(asked, str) else asked
    chosen = torch.zeros(len(ids), dtype=torch.float64)
    try:
        chosen[where if isinstance(where, (int, slice)) else torch.as_tensor(where)] = 1
    except (IndexError, TypeError, ValueError, RuntimeError) as error:
        raise TracerError(
            f"A prompt of {len(ids)} tokens has no positions {asked!r:.100}. Give 'all', 'last', a "
            "position, a slice, positions, or a function from ids to positions."
        ) from error
    if not bool(chosen.any()):
        raise TracerError(f"positions={positions!r:.100} chooses nothing of a prompt of {len(ids)} tokens.")
    return chosen / chosen.sum()


def _states(points: ModelPoints, ids: Tensor) -> list[Tensor]:
    """Return each layer's hidden states, float64 ``[B, S, H]``."""
    with HiddenStates(points, Tensor.double) as hidden:
        points.roots[0](ids)
        if hidden.silent:
            raise TracerError(
                f"Layers {hidden.silent} were not called in a forward pass, so they have no hidden states."
            )
        return [hidden.of(layer) for layer in hidden.layers]
