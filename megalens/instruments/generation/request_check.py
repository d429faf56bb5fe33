"""What a schema cannot check of a request: whether this model can do it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...protocol import ProtocolError
from ...protocol.errors import must_be
from ...protocol.generation import GenerationRequest
from ...protocol.messages_generated import Perturb
from ...tracer.perturb import PerturbPlan
from .attention import no_attention
from .errors import GenerationError
from .job import GenerationJob
from .language_model import LanguageModel
from .perturbing import generation_perturb
from .readout import no_lens
from .sweep import sweep_points

if TYPE_CHECKING:
    from ...tracer import Tracer

__all__ = ["MOST_TOKENS", "checked_jobs"]

MOST_TOKENS = 1 << 20
_FIELD = "request"


def checked_jobs(
    message: Mapping[str, Any], model: LanguageModel, tracer: Tracer, who: str
) -> list[GenerationJob]:
    """Return what is to be done for a request: one generation; or the clean one, then the one under the perturbation. They have no numbers yet.

    Raises
    ------
    ProtocolError
        With the field at fault.
    """
    if tracer.points.place.world_size > 1 and model.alone:
        raise ProtocolError(
            "refused",
            "This model is trained by several processes, of which one alone cannot compute a forward pass.",
            field=_FIELD,
        )
    request = GenerationRequest.from_message(message, _FIELD)
    prompts = [_prompt(number, text, request, model) for number, text in enumerate(request.prompts)]
    if model.vocabulary is not None:
        for place, token in enumerate(request.stop_tokens or ()):
            if token >= model.vocabulary:
                field = f"{_FIELD}.stop_tokens.{place}"
                raise must_be("A stop token", f"0 to {model.vocabulary - 1}", token, field)
    for member, asked, reason in (
        ("attention", request.attention, no_attention(tracer.points)),
        ("lens", request.lens, no_lens(model.module, tracer.points)),
    ):
        if asked and reason:
            raise ProtocolError("bad-parameter", reason, field=f"{_FIELD}.{member}")
    if request.perturb is None:
        return [GenerationJob(0, request, prompts, who)]
    perturb = _perturb(request.perturb, tracer)
    for number, point in enumerate(sweep_points(request)):
        _perturb(point.perturb, tracer, f"{_FIELD}.sweep.values.{number}")
    control = GenerationJob(0, replace(request, perturb=None, sweep=None), prompts, who, paired=True)
    return [control, GenerationJob(0, request, prompts, who, control=control, perturb=perturb, paired=True)]


def _prompt(number: int, text: str, request: GenerationRequest, model: LanguageModel) -> list[int]:
    field = f"{_FIELD}.prompts.{number}"
    try:
        ids = model.texts.encode(text)
    except GenerationError as error:
        raise ProtocolError("bad-parameter", f"Prompt {number}: {error}", field=field) from error
    if model.vocabulary is not None and not all(0 <= token < model.vocabulary for token in ids):
        wrong = next(token for token in ids if not 0 <= token < model.vocabulary)
        raise ProtocolError(
            "bad-parameter",
            f"Token ids of prompt {number} must be 0 to {model.vocabulary - 1}, got {wrong}: the tokenizer is of another vocabulary than the model.",
            field=field,
            expected=f"0 to {model.vocabulary - 1}",
            got=str(wrong),
        )
    if model.context is None:
        return ids
    if len(ids) > model.context:
        raise must_be(
            f"Prompt {number}", f"1 to {model.context} tokens, the model's context", len(ids), field
        )
    left = model.context - len(ids)
    if request.tokens > left and not model.slides:
        what = f"tokens after prompt {number}, which has {len(ids)} of the {model.context} that the model can read,"
        raise must_be(what, f"0 to {left}", request.tokens, f"{_FIELD}.tokens")
    return ids


def _perturb(setting: Perturb, tracer: Tracer, field: str | None = None) -> PerturbPlan:
    """Return the plan of what is asked for; an error names ``field``, or what of the perturbation is wrong."""
    if "perturb" not in tracer.controls:
        raise ProtocolError(
            "refused",
            "The script does not allow perturbations. It would with allow=['perturb'].",
            field=f"{_FIELD}.perturb",
        )
    try:
        return generation_perturb(setting, tracer.points, tracer.folders)
    except ProtocolError as error:
        where = field or f"{_FIELD}.{error.field or 'perturb'}"
        raise ProtocolError(
            error.code, error.message, field=where, expected=error.expected, got=error.got
        ) from error
