"""How a tensor can be perturbed, as data: kinds and their parameters, which need no torch to write down."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from .errors import ProtocolError

__all__ = [
    "PERTURBATIONS",
    "BitFlip",
    "Noise1",
    "Noise2",
    "Offset",
    "Perturbation",
    "perturbation_from_setting",
    "perturbation_infos",
]


@dataclass(frozen=True)
class Perturbation:
    """What is done to each element of one tensor. Subclasses hold the parameters; the tracer does the arithmetic."""

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    properties: ClassVar[dict[str, dict[str, Any]]] = {}

    def to_setting(self) -> dict[str, Any]:
        """Return the kind as it stands in a message: its name and all its parameters."""
        return {"name": self.name, "params": asdict(self)}


@dataclass(frozen=True)
class Noise1(Perturbation):
    """Add Gaussian noise: y = x + coefficient · N(0, 1)."""

    name: ClassVar[str] = "noise1"
    title: ClassVar[str] = "Additive Gaussian noise"
    properties: ClassVar[dict[str, dict[str, Any]]] = {
        "coefficient": {
            "type": "number",
            "title": "Coefficient",
            "description": "Standard deviation of what is added to each element.",
            "minimum": 0,
            "maximum": 1e6,
            "default": 0.01,
        }
    }
    coefficient: float = 0.01


@dataclass(frozen=True)
class Noise2(Perturbation):
    """Multiply by uniform noise: y = x · U(1 − coefficient, 1 + coefficient)."""

    name: ClassVar[str] = "noise2"
    title: ClassVar[str] = "Multiplicative uniform noise"
    properties: ClassVar[dict[str, dict[str, Any]]] = {
        "coefficient": {
            "type": "number",
            "title": "Coefficient",
            "description": "Each element is multiplied by a number from 1 − coefficient to 1 + coefficient.",
            "minimum": 0,
            "maximum": 1e6,
            "default": 0.05,
        }
    }
    coefficient: float = 0.05


@dataclass(frozen=True)
class BitFlip(Perturbation):
    """Flip one bit of some elements. Gradients pass through as if nothing had been flipped."""

    name: ClassVar[str] = "bit_flip"
    title: ClassVar[str] = "Bit flips"
    properties: ClassVar[dict[str, dict[str, Any]]] = {
        "rate": {
            "type": "number",
            "title": "Rate",
            "description": "Share of the elements in which a bit is flipped.",
            "minimum": 0,
            "maximum": 1,
            "default": 0.0001,
        },
        "bit": {
            "title": "Bit",
            "description": "Which one, counted from 0, the lowest of the mantissa (float32 has 0 to 31, 31 is the sign; bfloat16 and float16 have 0 to 15); any is one at random.",
            "enum": ["any", *range(64)],
            "default": "any",
        },
    }
    rate: float = 0.0001
    bit: int | str = "any"


@dataclass(frozen=True)
class Offset(Perturbation):
    """Add a constant to all or some elements: y = x + coefficient."""

    name: ClassVar[str] = "offset"
    title: ClassVar[str] = "Constant offset"
    properties: ClassVar[dict[str, dict[str, Any]]] = {
        "coefficient": {
            "type": "number",
            "title": "Offset",
            "description": "What is added.",
            "minimum": -1e6,
            "maximum": 1e6,
            "default": 0.01,
        },
        "fraction": {
            "type": "number",
            "title": "Fraction",
            "description": "Share of the elements that it is added to.",
            "minimum": 0,
            "maximum": 1,
            "default": 1,
        },
    }
    coefficient: float = 0.01
    fraction: float = 1.0


PERTURBATIONS: dict[str, type[Perturbation]] = {kind.name: kind for kind in (Noise1, Noise2, BitFlip, Offset)}


def perturbation_infos() -> list[dict[str, Any]]:
    """Return the ``KindInfo`` list that a ``SiteInfo`` carries."""
    return [
        {
            "name": name,
            "title": kind.title,
            "description": " ".join((kind.__doc__ or "").split()),
            "schema": {
                "type": "object",
                "additionalProperties": False,
                "required": [],
                "properties": kind.properties,
            },
        }
        for name, kind in PERTURBATIONS.items()
    ]


def perturbation_from_setting(setting: Mapping[str, Any], field: str = "kind") -> Perturbation:
    """Return the perturbation that ``{"name": …, "params": …}`` means. Parameters that are left out take their defaults.

    Raises
    ------
    ProtocolError
        ``bad-parameter``, with the dotted field.
    """
    name = setting.get("name")
    kind = PERTURBATIONS.get(name) if isinstance(name, str) else None
    if kind is None:
        known = ", ".join(PERTURBATIONS)
        raise ProtocolError(
            "bad-parameter",
            f"There is no kind of perturbation {name!r:.100}. Choose one of {known}.",
            field=f"{field}.name",
            expected=known,
            got=repr(name)[:200],
        )
    values: dict[str, Any] = {}
    known = ", ".join(one.name for one in fields(kind))
    for key, value in (setting.get("params") or {}).items():
        where = f"{field}.params.{key}"
        spec = kind.properties.get(key)
        if spec is None:
            raise ProtocolError(
                "bad-parameter",
                f"{name} has no parameter {key!r:.100}. It takes {known}.",
                field=where,
                expected=known,
                got=repr(key)[:200],
            )
        values[key] = _checked(f"{name}({key}=…)", value, spec, where)
    return kind(**values)


def _checked(what: str, value: Any, spec: Mapping[str, Any], field: str) -> Any:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if "enum" in spec:
        # 1.0 and True equal 1, and mean no bit.
        fits = isinstance(value, (int, str)) and not isinstance(value, bool) and value in spec["enum"]
        expected = f"'{spec['enum'][0]}' or a whole number from {spec['enum'][1]} to {spec['enum'][-1]}"
    else:
        low, high = spec["minimum"], spec["maximum"]
        fits = is_number and math.isfinite(value) and low <= value <= high
        expected = f"a number from {low:g} to {high:g}"
    if not fits:
        raise ProtocolError(
            "bad-parameter",
            f"{what} must be {expected}, and {value!r:.100} came.",
            field=field,
            expected=expected,
            got=repr(value)[:200],
        )
    return value if "enum" in spec else float(value)
