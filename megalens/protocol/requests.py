"""What is asked of the rows of a run, checked against ``requests.schema.json`` where it comes in.

What a model is asked to write: the request with its defaults, and what the schema cannot check of it.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any, TypeVar

from .contract import SchemaCheck, contract_json, schema_check
from .errors import ProtocolError, must_be
from .messages import check_definition
from .messages_generated import GenerateRequest, Perturb, Sweep

__all__ = ["GENERATION_ENDED", "GenerationRequest", "MOST_SEQUENCES", "check_request"]


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


_T = TypeVar("_T")
_MEMBER = re.compile(
    r"has a member that is not known here, ['\"](.*)['\"]$|lacks the member (\w+)$", re.DOTALL
)


def check_request(kind: type[_T], value: Any) -> _T:
    """Return a request from outside, as it is.

    Parameters
    ----------
    kind : type
        One of the requests of ``requests.schema.json``: ``StreamRequest``, ``MomentGroupsRequest``, ….

    Raises
    ------
    ProtocolError
        ``bad-parameter`` with the dotted field at fault.
    """
    check, properties = _known(kind.__name__)
    misfit = check(value)
    if misfit is None:
        found: _T = value
        return found
    path, words = [str(part) for part in misfit.path], misfit.words
    if member := _MEMBER.search(words):
        # The member is at fault, not what has it.
        path.append(member[1] if member[2] is None else member[2])
        words = "is not known here" if member[2] is None else "must be given"
        words += "" if len(path) > 1 else f". A request may have {', '.join(properties)}"
    field = ".".join(path)[:100]
    raise ProtocolError(
        "bad-parameter",
        f"{field or ('The request' if not path else 'A member without a name')} {words}.",
        field=field or None,
    )


@cache
def _known(name: str) -> tuple[SchemaCheck, list[str]]:
    schema, views = contract_json("requests.schema.json"), contract_json("views.schema.json")
    # No name is in both files. A reference to the other file is a name of its own.
    definitions = {**views["$defs"], **schema["$defs"]}
    for reference in re.findall(r'"(views\.schema\.json#/[^"]+)"', json.dumps(schema)):
        path = reference.split("/")[1:]
        definitions[reference] = reduce(lambda node, part: node[part], path, views)
    check = schema_check({"$ref": f"#/$defs/{name}"}, definitions, whole=True)
    return check, list(schema["$defs"][name]["properties"])
