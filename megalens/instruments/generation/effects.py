"""The effect of a perturbation on the reading of the clean text, in one pass each: the stream ``effects``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...tracer.points import ModelPoints
from .hidden import HiddenStates
from .job import GenerationJob, first_differences, generation_perturb, perturbed, sweep_points
from .language_model import LanguageModel

_MOST_VALUES = 1 << 26
"""Logits, or hidden states of all layers, of the clean pass that are stored at once."""


def compared(
    job: GenerationJob, model: LanguageModel, points: ModelPoints, folders: Sequence[Path]
) -> Iterator[dict[str, Any]]:
    """Compare a generation with its control, then run its sweep, until it is cancelled.

    The clean text is read in one pass, without and with the perturbation. For each point of a sweep text is
    written, too, until it differs from the clean one. The model is in evaluation mode and untraced, and clean
    between two yields, which are columns by name, all but ``step``. ``folders`` may have vector files. What
    cannot be done is reported in the job.
    """
    control, perturb = job.control, job.perturb
    assert control is not None
    assert perturb is not None
    clean = control.texts
    # The last token that was written was never read.
    read = [
        text[: max(len(text) - 1, len(prompt))] for text, prompt in zip(clean, control.sequences, strict=True)
    ]
    if model.context is not None and any(len(text) > model.context for text in read):
        read = [text[: model.context] for text in read]
        job.add_message(f"Effects are of the first {model.context} positions, which the model reads at once.")
    reader = EffectReader(model, points, read)
    same = {"generation": job.number, "control": control.number}
    differences = [first_difference(*texts) for texts in zip(clean, job.texts, strict=True)]
    for _, first, effects in reader.compare(1, lambda _: perturbed(points, perturb, job.add_message)):
        for sequence, effect in enumerate(effects, first):
            if job.cancelled:
                return
            yield effect_columns(
                [effect],
                reader.layers,
                first=sequence,
                divergence=differences[sequence : sequence + 1],
                positions=True,
                point=-1,
                setting="",
                value=float("nan"),
                **same,
            )
    yield from _swept(job, model, points, folders, reader, same)


def _swept(
    job: GenerationJob,
    model: LanguageModel,
    points: ModelPoints,
    folders: Sequence[Path],
    reader: EffectReader,
    same: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    swept = sweep_points(job.request)
    assert job.control is not None
    clean = job.control.texts
    differences: dict[int, list[int]] = {}

    def armed(number: int) -> Any:
        return perturbed(points, generation_perturb(swept[number].perturb, points, folders), job.add_message)

    for number, first, effects in reader.compare(len(swept), armed):
        if number not in differences and not job.cancelled:
            with armed(number) as clock:
                differences[number] = first_differences(
                    partial(job.decoding, model, before=clock.count),
                    job.sequences,
                    clean,
                    lambda: job.cancelled,
                )
        if job.cancelled:
            return
        job.progress = f"Point {number + 1} of {len(swept)}."
        yield effect_columns(
            effects,
            reader.layers,
            first=first,
            divergence=differences[number][first:],
            positions=False,
            point=number,
            setting=swept[number].setting,
            value=swept[number].value,
            **same,
        )


_MOST_AT_ONCE = 1 << 22
"""Of them at once in double precision."""


@dataclass(frozen=True, eq=False)
class Effect:
    """Changes while one sequence was read.

    Attributes
    ----------
    kl : numpy.ndarray
        float64 ``[positions]``, nats: of the perturbed from the clean distribution of the next token.
    changed : numpy.ndarray
        bool ``[positions]``: whether the most probable next token is another one.
    distance : numpy.ndarray
        float64 ``[layers, positions]``: L2 distance of the hidden states over the L2 norm of the clean ones.
    """

    kl: np.ndarray
    changed: np.ndarray
    distance: np.ndarray


class EffectReader:
    """Has the model read texts without and with perturbations, padded as its prompts are.

    ``texts`` are token ids, none empty and none longer than the context.
    """

    def __init__(self, model: LanguageModel, points: ModelPoints, texts: Sequence[Sequence[int]]) -> None:
        self._model, self._texts = model, texts
        self._hidden = HiddenStates(points)
        self.layers = self._hidden.layers
        """Layers whose hidden states are compared."""
        width = max(model.vocabulary or 1, len(self.layers) * (points.model.get("hidden") or 1))
        rows = max(1, _MOST_VALUES // (max(map(len, texts)) * width))
        # Sequences that are read together.
        self._groups = list(pairwise([*range(0, len(texts), rows), len(texts)]))

    def compare(
        self, count: int, armed: Callable[[int], AbstractContextManager[object]]
    ) -> Iterator[tuple[int, int, list[Effect]]]:
        """Compare ``count`` perturbations with the clean text, which is read once for each group of
        sequences.

        ``armed`` returns the context with a perturbation on, by its number. Yields that number, the first
        sequence, and the effects on it and those that follow; the model is clean between two yields.
        """
        for first, last in self._groups:
            texts = self._texts[first:last]
            clean = self._read(texts)
            for number in range(count):
                with armed(number):
                    noisy = self._read(texts)
                yield number, first, [_effect(*each) for each in zip(clean, noisy, strict=True)]

    @torch.no_grad()
    def _read(self, texts: Sequence[Sequence[int]]) -> list[tuple[Tensor, list[Tensor]]]:
        """Return of each sequence its logits ``[n, V]`` and each layer's hidden states ``[n, H]``."""
        reading = self._model.begin(texts)
        window = reading.window
        with self._hidden as hidden:
            logits = reading.prompts()
            states = [hidden.of(layer, window) for layer in self.layers]
        # Padding is in front.
        return [
            (logits[row, -len(text) :], [state[row, -len(text) :] for state in states])
            for row, text in enumerate(texts)
        ]


def first_difference(clean: Sequence[int], other: Sequence[int]) -> int:
    """Return the first position at which two texts differ, also by the end of one; -1 where they do not."""
    for at, (one, two) in enumerate(zip(clean, other, strict=False)):
        if one != two:
            return at
    return -1 if len(clean) == len(other) else min(len(clean), len(other))


def effect_columns(
    effects: Sequence[Effect],
    layers: Sequence[int],
    *,
    first: int,
    divergence: Sequence[int],
    positions: bool,
    **same: Any,
) -> dict[str, Any]:
    """Return columns of the stream: of each sequence the rows over all positions, then those of each
    position.

    ``effects`` are of consecutive sequences from ``first``; ``divergence`` is the first position at which
    what each wrote differs, or -1; ``positions`` adds rows of each position; ``same`` are constant columns.
    """
    parts: list[dict[str, np.ndarray]] = []
    for number, effect in enumerate(effects):
        kl, changed, distance = effect.kl, effect.changed.astype(np.float64), effect.distance
        nothing = np.full_like(distance, math.nan)
        table = {
            "kl": np.vstack([kl, nothing]),
            "changed": np.vstack([changed, nothing]),
            "distance": np.vstack([np.full_like(kl, math.nan), distance]),
        }
        means = {name: values.mean(1, keepdims=True) for name, values in table.items()}
        for values, positions_of in ((table, np.arange(len(kl))), (means, np.array([-1]))):
            if len(values["kl"][0]) and (positions or values is means):
                shape = values["kl"].shape
                over = np.full(shape, -1)
                over[0] = divergence[number] if values is means else -1
                parts.append(
                    {
                        **{name: each.ravel() for name, each in values.items()},
                        "sequence": np.full(shape, first + number).ravel(),
                        "position": np.broadcast_to(positions_of, shape).ravel(),
                        "layer": np.broadcast_to(np.array([-1, *layers])[:, None], shape).ravel(),
                        "divergence": over.ravel(),
                    }
                )
    columns: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    rows = len(columns["kl"])
    for name, value in same.items():
        columns[name] = [value] * rows if isinstance(value, str) else np.full(rows, value)
    return columns


def _effect(clean: tuple[Tensor, list[Tensor]], noisy: tuple[Tensor, list[Tensor]]) -> Effect:
    changed = clean[0].argmax(-1) != noisy[0].argmax(-1)
    distances = [_in_parts(_distance, *states) for states in zip(clean[1], noisy[1], strict=True)]
    return Effect(
        _in_parts(kl_divergence, clean[0], noisy[0]).cpu().numpy(),
        changed.cpu().numpy(),
        torch.stack(distances).cpu().numpy() if distances else np.empty((0, len(changed))),
    )


def _in_parts(measure: Callable[[Tensor, Tensor], Tensor], one: Tensor, two: Tensor) -> Tensor:
    """Measure positions in double precision (single on a device that has no other), some at a time."""
    wide = torch.float32 if one.device.type == "mps" else torch.float64
    rows = max(1, _MOST_AT_ONCE // one.shape[-1])
    pieces = zip(torch.split(one, rows), torch.split(two, rows), strict=True)
    return torch.cat([measure(a.to(wide), b.to(wide)).double().cpu() for a, b in pieces])


def kl_divergence(clean: Tensor, noisy: Tensor) -> Tensor:
    """Return the divergence (nats) of ``noisy`` from clean logits' distributions, ``[n]`` of ``[n, V]``."""
    one, two = clean.log_softmax(-1), noisy.log_softmax(-1)
    chances = one.exp()
    # Impossible tokens add nothing, where minus infinity from itself is NaN. Rounding must not go below zero.
    return torch.where(chances > 0, chances * (one - two), torch.zeros_like(chances)).sum(-1).clamp(min=0)


def _distance(clean: Tensor, noisy: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm
    relative: Tensor = norm(noisy - clean, dim=-1) / norm(clean, dim=-1)
    return relative
