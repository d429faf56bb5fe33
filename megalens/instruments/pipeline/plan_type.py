"""A plan of a pipeline's step: what each stage does, in order."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ...protocol import parse_json
from .errors import PipelineError
from .placement import Placement

__all__ = ["Operation", "Plan"]

_MEMBERS = ("schedule", "stages", "chunks", "micro_batches", "placement", "order")
_MOST_BYTES = 1 << 30
_WORD = re.compile("([0-9]{1,9})([FBIW])([0-9]{1,9})")


class Operation(NamedTuple):
    """One pass of one micro-batch through one virtual stage: ``F``, ``B``, or ``I`` and ``W``."""

    kind: str
    virtual: int
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.virtual}{self.kind}{self.micro_batch}"

    @staticmethod
    def of(word: str) -> Operation:
        """Return what a word of a plan means; raises ``ValueError`` where it is none."""
        match = _WORD.fullmatch(word)
        if match is None:
            raise ValueError(word)
        return Operation(match[2], int(match[1]), int(match[3]))


@dataclass(frozen=True)
class Plan:
    """A ``Plan`` of ``protocol/pipeline.schema.json``. That it is right, :func:`check_plan` says.

    Attributes
    ----------
    schedule : str
        Its name.
    layout : Placement
        Stages, chunks, micro-batches, and where which virtual stage lies.
    order : tuple of str
        By stage, operations separated by one space.
    parsed : dict
        By stage, what :meth:`operations` found so far.
    """

    schedule: str
    layout: Placement
    order: tuple[str, ...]
    parsed: dict[int, list[Operation]] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def of(given: Any) -> Plan:
        """Return a plan from a mapping, its JSON as bytes, the path of a JSON file, or what :func:`megalens.pipeline.plan` gave.

        Raises
        ------
        PipelineError
            ``shape``, when it is none.
        """
        if isinstance(given, Plan):
            return given
        if isinstance(own := getattr(given, "plan", None), (Plan, Mapping)):
            return Plan.of(own)
        if isinstance(given, (str, os.PathLike)):
            given = _read(Path(given))
        if isinstance(given, (bytes, bytearray)):
            try:
                given = parse_json(given)
            except ValueError as error:
                raise PipelineError(f"A plan must be JSON: {error}", code="shape") from error
        if not isinstance(given, Mapping):
            raise PipelineError(
                f"A plan must be an object with {', '.join(_MEMBERS)}, or the path of a JSON file with one, got a {type(given).__name__}.",
                code="shape",
            )
        if set(given) != set(_MEMBERS):
            raise PipelineError(
                f"A plan must have {', '.join(_MEMBERS)}, got {', '.join(map(str, given)) or 'nothing'}.",
                code="shape",
            )
        order, name = given["order"], given["schedule"]
        if not isinstance(order, (list, tuple)) or not all(isinstance(each, str) for each in order):
            raise PipelineError("order must be a list of texts, one for each stage.", code="shape")
        if not isinstance(name, str) or len(name) > 100:
            raise PipelineError(
                f"schedule must be a name of at most 100 characters, got {name!r:.120}.", code="shape"
            )
        layout = Placement(given["placement"], given["stages"], given["chunks"], given["micro_batches"])
        if len(order) != layout.stages:
            raise PipelineError(
                f"order must have one text for each of {layout.stages} stages, got {len(order)}.",
                code="shape",
            )
        return Plan(name, layout, tuple(order))

    def operations(self, stage: int) -> list[Operation]:
        """Return what a stage does, in order, of a plan that :func:`check_plan` took."""
        found = self.parsed.get(stage)
        if found is None:
            # One pass in C over a text that was checked where it came from.
            words = _WORD.findall(self.order[stage])
            found = self.parsed[stage] = [Operation(kind, int(v), int(m)) for v, kind, m in words]
        return found

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        layout = self.layout
        return {
            "schedule": self.schedule,
            "stages": layout.stages,
            "chunks": layout.chunks,
            "micro_batches": layout.micro_batches,
            "placement": layout.kind,
            "order": list(self.order),
        }


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise PipelineError(
                f"A plan has at most {_MOST_BYTES >> 20} MiB, and {path} is larger.", code="shape"
            )
        return path.read_bytes()
    except OSError as error:
        raise PipelineError(
            f"The plan {str(path)!r:.200} cannot be read: {error.strerror or error}. Give the path of a JSON file with a plan, or the name of an order.",
            code="shape",
        ) from error
