"""What a model is asked to write: the request with its defaults, and what the schema cannot check of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import must_be
from .messages import check_definition
from .messages_generated import GenerateRequest, Perturb, Sweep

__all__ = ["GENERATION_ENDED", "MOST_SEQUENCES", "GenerationRequest"]

GENERATION_ENDED = ("finished", "cancelled", "failed")
"""States of a generation of which nothing more comes."""
MOST_SEQUENCES = 128
"""Sequences of one generation: prompts times samples."""


@dataclass(frozen=True)
class GenerationRequest:
    """``GenerateRequest`` of the messages, with every default written out."""

    prompts: tuple[str, ...]
    tokens: int = 64
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    samples: int = 1
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] | None = None
    """None is the tokenizer's end of text."""
    candidates: int = 20
    attention: bool = False
    lens: int = 0
    perturb: Perturb | None = None
    sweep: Sweep | None = None

    @property
    def sequences(self) -> int:
        """Rows of the batch."""
        return len(self.prompts) * self.samples

    @classmethod
    def from_message(cls, message: Mapping[str, Any], field: str = "request") -> GenerationRequest:
        """Return the request of a message, or of a person's own dict.

        Raises
        ------
        ProtocolError
            ``bad-parameter``, with the dotted field at fault below ``field``.
        """
        prompts = message.get("prompts")
        if isinstance(prompts, Sequence) and not isinstance(prompts, str):
            if not 1 <= len(prompts) <= MOST_SEQUENCES:
                raise must_be("prompts", f"1 to {MOST_SEQUENCES} texts", len(prompts), f"{field}.prompts")
            for number, prompt in enumerate(prompts):
                if prompt == "":
                    raise must_be(
                        f"Prompt {number}",
                        "a text of 1 character or more",
                        prompt,
                        f"{field}.prompts.{number}",
                    )
        check_definition("GenerateRequest", message, field)
        members: dict[str, Any] = {
            name: tuple(value) if isinstance(value, (list, tuple)) else value
            for name, value in message.items()
        }
        request = cls(**members)
        if request.sequences > MOST_SEQUENCES:
            raise must_be(
                "prompts times samples", f"1 to {MOST_SEQUENCES}", request.sequences, f"{field}.samples"
            )
        sweep = request.sweep
        if sweep is not None:
            sites = [] if request.perturb is None else [*request.perturb["sites"]]
            if len(sites) != 1:
                raise must_be("perturb of a sweep", "a perturbation of one site", sites, f"{field}.perturb")
            kind = (int, float) if sweep["over"] == "coefficient" else str
            for number, value in enumerate(sweep["values"]):
                if not isinstance(value, kind):
                    expected = "a number" if sweep["over"] == "coefficient" else "a text"
                    raise must_be(
                        f"Value {number} of the sweep", expected, value, f"{field}.sweep.values.{number}"
                    )
        return request

    def to_message(self) -> GenerateRequest:
        """Return the complete message, without ``stop_tokens`` where they are the tokenizer's."""
        members = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return {  # type: ignore[return-value]
            name: list(value) if isinstance(value, tuple) else value
            for name, value in members.items()
            if value is not None
        }
