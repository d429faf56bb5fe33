"""The rows of ``effects`` of one generation under a perturbation: what it changed, and what each point of its sweep does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...tracer.points import ModelPoints
from .effects import EffectReader, effect_columns, first_difference
from .job import GenerationJob
from .language_model import LanguageModel
from .perturbing import generation_perturb, perturbed
from .sweep import first_differences, sweep_points

__all__ = ["compared"]


def compared(
    job: GenerationJob, model: LanguageModel, points: ModelPoints, folders: Sequence[Path]
) -> Iterator[dict[str, Any]]:
    """Compare a generation with its control, then do its sweep. Ends early once it is cancelled.

    The clean text is read anew, in one pass, without and with the perturbation. For each point of a sweep text is written, too, until it differs from the clean one.

    Parameters
    ----------
    job : GenerationJob
        It and its control are written. What cannot be done is said of it, and how far a sweep is.
    model : LanguageModel
        In evaluation mode, untraced and unperturbed.
    points : ModelPoints
        Where the model's layers are.
    folders : sequence of Path
        Where vector files may lie.

    Yields
    ------
    dict
        Columns by name, all but ``step``. Between two of them the model is clean.
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
        job.say(f"Effects are of the first {model.context} positions, which the model reads at once.")
    reader = EffectReader(model, points, read)
    same = {"generation": job.number, "control": control.number}
    differences = [first_difference(*texts) for texts in zip(clean, job.texts, strict=True)]
    for _, first, effects in reader.compare(1, lambda _: perturbed(points, perturb, job.say)):
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
        return perturbed(points, generation_perturb(swept[number].perturb, points, folders), job.say)

    for number, first, effects in reader.compare(len(swept), armed):
        if number not in differences and not job.cancelled:
            with armed(number) as clock:
                differences[number] = first_differences(
                    lambda ends, clock=clock: job.decoding(model, ends=ends, before=clock.count),  # type: ignore[misc]
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
