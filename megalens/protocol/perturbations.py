"""How a tensor can be perturbed, as data: kinds and their parameters, which need no torch to write down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .kinds import Kind, kind_from_setting, kind_infos
from .messages_generated import KindInfo

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
class Perturbation(Kind):
    """What is done to each element of one tensor. Subclasses hold the parameters; the tracer does the arithmetic."""


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


def perturbation_infos() -> list[KindInfo]:
    """Return the ``KindInfo`` list that a ``SiteInfo`` carries."""
    return kind_infos(PERTURBATIONS)


def perturbation_from_setting(setting: Mapping[str, Any], field: str = "kind") -> Perturbation:
    """Return the perturbation that ``{"name": …, "params": …}`` means. Parameters that are left out take their defaults.

    Raises
    ------
    ProtocolError
        ``bad-parameter``, with the dotted field.
    """
    return kind_from_setting(
        PERTURBATIONS, setting, field, noun="kind of perturbation", unknown="bad-parameter"
    )
