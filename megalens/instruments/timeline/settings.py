"""How finely the steps are timed, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...protocol import is_whole, must_be, no_such
from ...tracer.errors import TracerError

__all__ = ["GRANULARITIES", "TimelineSettings"]

GRANULARITIES = ("off", "steps", "phases", "layers", "operations")

_FIELD = "instruments.timeline"


@dataclass(frozen=True)
class TimelineSettings:
    """Settings of the instrument ``timeline``.

    Attributes
    ----------
    granularity : str
        ``off``; ``steps``: one sum for each kind of span; ``phases``: forward and backward passes, optimizer, data, collectives and messages; ``layers``: also each layer in its passes;
        ``operations``: also each module without children.
    every : int
        Every how many steps.
    around : int
        With ``steps``: once a rank is found slow, so many steps are timed by ``phases``.
    """

    granularity: str = "off"
    every: int = 1
    around: int = 10

    @classmethod
    def given(cls, asked: Any) -> TimelineSettings:
        """Return what a script asked for: a granularity, True for ``phases``, a mapping of both settings, or nothing for ``off``.

        Raises
        ------
        TracerError
            When it is none of these.
        """
        if asked is None or isinstance(asked, bool):
            return cls("phases" if asked else "off")
        settings = {"granularity": asked} if isinstance(asked, str) else asked
        if not isinstance(settings, Mapping) or settings.keys() - asdict(cls()).keys():
            raise TracerError(
                f"timeline=… must be one of {', '.join(GRANULARITIES)}, or a mapping with granularity, every and around, got {asked!r:.100}."
            )
        return cls.of(settings)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> TimelineSettings:
        """Return complete settings.

        Raises
        ------
        ProtocolError
            ``bad-parameter`` with the field at fault.
        """
        known = asdict(cls())
        for name in settings:
            if name not in known:
                raise no_such("setting", name, known, f"{_FIELD}.{name}", "bad-parameter")
        asked = {**known, **settings}
        if asked["granularity"] not in GRANULARITIES:
            expected = f"one of {', '.join(GRANULARITIES)}"
            raise must_be("granularity", expected, asked["granularity"], f"{_FIELD}.granularity")
        if not is_whole(asked["every"], 1):
            raise must_be("every", "a whole number of steps from 1", asked["every"], f"{_FIELD}.every")
        if not is_whole(asked["around"]):
            raise must_be("around", "a whole number of steps from 0", asked["around"], f"{_FIELD}.around")
        return cls(**asked)

    def to_message(self) -> dict[str, Any]:
        """Return the settings object."""
        return asdict(self)

    @staticmethod
    def schema() -> dict[str, Any]:
        """Return the JSON Schema of the settings object."""
        return {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "granularity": {
                    "type": "string",
                    "enum": list(GRANULARITIES),
                    "default": "off",
                    "title": "Granularity",
                    "description": "off; steps: one sum for each kind; phases, with collectives and messages; layers; operations: every module.",
                },
                "every": {
                    "type": "integer",
                    "minimum": 1,
                    "default": 1,
                    "title": "Every how many steps",
                },
                "around": {
                    "type": "integer",
                    "minimum": 0,
                    "default": 10,
                    "title": "Steps after a slow rank",
                    "description": "Of granularity steps: so many steps are timed by phases once a rank is found slow.",
                },
            },
        }
