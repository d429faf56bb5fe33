"""How a tensor can be perturbed, as data: kinds and their parameters, which need no torch to write down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .kinds import Kind, kind_from_setting, kind_infos, number
from .messages_generated import KindInfo

__all__ = [
    "PERTURBATIONS",
    "AddVector",
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
    """What is done to each element of one tensor. Subclasses hold the parameters; the tracer does the arithmetic.

    Attributes
    ----------
    sites : tuple of str
        Sites where it can be done.
    """

    sites: ClassVar[tuple[str, ...]] = ("weight", "calculation", "system")


@dataclass(frozen=True)
class Noise1(Perturbation):
    """Add Gaussian noise: y = x + coefficient · N(0, 1)."""

    name: ClassVar[str] = "noise1"
    title: ClassVar[str] = "Additive Gaussian noise"
    properties: ClassVar[dict[str, dict[str, Any]]] = {
        "coefficient": number(
            "Coefficient", "Standard deviation of what is added to each element.", 0, 1e6, 0.01
        ),
    }
    coefficient: float = 0.01


@dataclass(frozen=True)
class Noise2(Perturbation):
    """Multiply by uniform noise: y = x · U(1 − coefficient, 1 + coefficient)."""

    name: ClassVar[str] = "noise2"
    title: ClassVar[str] = "Multiplicative uniform noise"
    properties: ClassVar[dict[str, dict[str, Any]]] = {
        "coefficient": number(
            "Coefficient",
            "Each element is multiplied by a number from 1 − coefficient to 1 + coefficient.",
            0,
            1e6,
            0.05,
        ),
    }
    coefficient: float = 0.05


@dataclass(frozen=True)
class BitFlip(Perturbation):
    """Flip one bit of some elements. Gradients pass through as if nothing had been flipped."""

    name: ClassVar[str] = "bit_flip"
    title: ClassVar[str] = "Bit flips"
    properties: ClassVar[dict[str, dict[str, Any]]] = {
        "rate": number("Rate", "Share of the elements in which a bit is flipped.", 0, 1, 0.0001),
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
        "coefficient": number("Offset", "What is added.", -1e6, 1e6, 0.01),
        "fraction": number("Fraction", "Share of the elements that it is added to.", 0, 1, 1),
    }
    coefficient: float = 0.01
    fraction: float = 1.0


@dataclass(frozen=True)
class AddVector(Perturbation):
    """Add a vector to each position (steering): y = x + coefficient · v."""

    name: ClassVar[str] = "add_vector"
    title: ClassVar[str] = "Add a vector"
    sites: ClassVar[tuple[str, ...]] = ("calculation", "system")
    properties: ClassVar[dict[str, dict[str, Any]]] = {
        "vectors": {
            "type": "string",
            "title": "Vectors",
            "description": "File in an allowed folder with one vector per layer, [layers, hidden], or one for all, [hidden]: .safetensors, .npy or weights-only .pt.",
            "minLength": 1,
            "maxLength": 1000,
        },
        "coefficient": number("Coefficient", "How much of it is added; below 0 the opposite.", -1e6, 1e6, 1),
        "normalise": {
            "type": "boolean",
            "title": "Normalise",
            "description": "Whether each vector is divided by its L2 norm first.",
            "default": True,
        },
    }
    vectors: str = ""
    coefficient: float = 1.0
    normalise: bool = True


PERTURBATIONS: dict[str, type[Perturbation]] = {
    kind.name: kind for kind in (Noise1, Noise2, BitFlip, Offset, AddVector)
}


def perturbation_infos(site: str | None = None) -> list[KindInfo]:
    """Return the ``KindInfo`` list that a ``SiteInfo`` carries: what can be done at a site, or all kinds."""
    return kind_infos(
        {name: kind for name, kind in PERTURBATIONS.items() if site is None or site in kind.sites}
    )


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
