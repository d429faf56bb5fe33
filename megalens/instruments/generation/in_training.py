"""A model in training that writes text between two steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...tracer.coordinates import RankCoordinates
from ...tracer.errors import TracerError
from ...tracer.settings import TraceSettings

if TYPE_CHECKING:
    from .instrument import GenerationInstrument


def traced(model: Any, settings: TraceSettings, place: RankCoordinates) -> GenerationInstrument | None:
    """Return the instrument with which a model in training writes text; None where it is not allowed."""
    if "generate" not in settings.allow or settings.hub is None:
        return None
    if place.world_size > 1:
        raise TracerError(
            f"allow=['generate'] needs the whole model in one process, and this job has {place.world_size}. "
            "Leave it out here, and load a checkpoint with megalens.serve."
        )
    # What few trainings need is not imported by all.
    from .instrument import GenerationInstrument
    from .of_model import as_language_model

    return GenerationInstrument(as_language_model(model, settings.tokenizer))
