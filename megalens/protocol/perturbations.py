"""How a tensor can be perturbed, as data: kinds and their parameters, which need no torch to write down."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from .errors import ProtocolError, must_be
from .kinds import Kind, chosen, kind_from_setting, kind_infos, number, switch, text
from .messages_generated import KindInfo, Perturb, PerturbSite, Phase

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
    "perturb_from_disturbance",
    "perturb_of",
]

_SITES = ("weight", "calculation", "system")
_FUNCTIONS = ("noise1", "noise2")
_FIELD = "disturbance_configs"


@dataclass(frozen=True)
class Perturbation(Kind):
    """What is done to each element of one tensor at one of ``sites``; the tracer does the arithmetic."""

    sites: ClassVar[tuple[str, ...]] = ("weight", "calculation", "system")


@dataclass(frozen=True)
class Noise1(Perturbation):
    """Add Gaussian noise: y = x + coefficient · N(0, 1)."""

    name: ClassVar[str] = "noise1"
    title: ClassVar[str] = "Additive Gaussian noise"
    coefficient: float = chosen(
        number("Coefficient", "Standard deviation of what is added to each element.", 0, 1e6, 0.01)
    )


@dataclass(frozen=True)
class Noise2(Perturbation):
    """Multiply by uniform noise: y = x · U(1 − coefficient, 1 + coefficient)."""

    name: ClassVar[str] = "noise2"
    title: ClassVar[str] = "Multiplicative uniform noise"
    coefficient: float = chosen(
        number(
            "Coefficient",
            "Each element is multiplied by a number from 1 − coefficient to 1 + coefficient.",
            0,
            1e6,
            0.05,
        )
    )


@dataclass(frozen=True)
class BitFlip(Perturbation):
    """Flip one bit of some elements. Gradients pass through as if nothing had been flipped."""

    name: ClassVar[str] = "bit_flip"
    title: ClassVar[str] = "Bit flips"
    rate: float = chosen(number("Rate", "Share of the elements in which a bit is flipped.", 0, 1, 0.0001))
    bit: int | str = chosen(
        {
            "title": "Bit",
            "description": "Which one, counted from 0, the lowest of the mantissa (float32 has 0 to 31, 31 "
            "is the sign; bfloat16 and float16 have 0 to 15); any is one at random.",
            "enum": ["any", *range(64)],
            "default": "any",
        }
    )


@dataclass(frozen=True)
class Offset(Perturbation):
    """Add a constant to all or some elements: y = x + coefficient."""

    name: ClassVar[str] = "offset"
    title: ClassVar[str] = "Constant offset"
    coefficient: float = chosen(number("Offset", "What is added.", -1e6, 1e6, 0.01))
    fraction: float = chosen(number("Fraction", "Share of the elements that it is added to.", 0, 1, 1))


@dataclass(frozen=True)
class AddVector(Perturbation):
    """Add a vector to each position (steering): y = x + coefficient · v."""

    name: ClassVar[str] = "add_vector"
    title: ClassVar[str] = "Add a vector"
    sites: ClassVar[tuple[str, ...]] = ("calculation", "system")
    vectors: str = text(
        "Vectors",
        "File in an allowed folder with one vector per layer, [layers, hidden], or one for all, [hidden]: "
        ".safetensors, .npy or weights-only .pt.",
        1000,
    )
    coefficient: float = chosen(
        number("Coefficient", "How much of it is added; below 0 the opposite.", -1e6, 1e6, 1)
    )
    normalise: bool = switch("Normalise", "Whether each vector is divided by its L2 norm first.", True)


PERTURBATIONS: dict[str, type[Perturbation]] = {
    kind.name: kind for kind in (Noise1, Noise2, BitFlip, Offset, AddVector)
}


def perturbation_infos(site: str | None = None) -> list[KindInfo]:
    """Return the ``KindInfo`` list that a ``SiteInfo`` carries: what can be done at a site, or all kinds."""
    return kind_infos(
        {name: kind for name, kind in PERTURBATIONS.items() if site is None or site in kind.sites}
    )


def perturbation_from_setting(setting: Mapping[str, Any], field: str = "kind") -> Perturbation:
    """Return the perturbation that ``{"name": …, "params": …}`` means, with its defaults.

    Raises
    ------
    ProtocolError
        ``bad-parameter``, with the dotted field.
    """
    return kind_from_setting(
        PERTURBATIONS, setting, field, noun="kind of perturbation", unknown="bad-parameter"
    )


def perturb_from_disturbance(
    configs: Mapping[str, Any],
    *,
    phases: Sequence[Phase] = ("train", "eval", "generate"),
    seed: int | None = None,
    steps: int | None = None,
) -> Perturb | None:
    """Return the ``Perturb`` object that a peer's ``disturbance_configs`` means; None where all of it is off.

    Parameters
    ----------
    configs : mapping
        For each X of ``weight``, ``calculation`` and ``system``: ``X_perturbation`` (a boolean or the text
        "True" or "False", in any case; off when absent), ``X_perturbation_fn`` (``noise1`` or ``noise2``) and
        ``X_perturbation_coef``. The latter two are not looked at where X is off, as the peers do.
    phases : sequence of str
        Phases in which it is done. A peer does it whenever the model runs.
    seed, steps : int, optional
        Members of ``Perturb`` that the dictionary lacks.

    Raises
    ------
    ProtocolError
        ``bad-parameter``, with a field such as ``disturbance_configs.weight_perturbation_coef``.
    """
    if not isinstance(configs, Mapping):
        raise must_be(_FIELD, "a dictionary", configs, _FIELD)
    known = [f"{site}_perturbation{end}" for site in _SITES for end in ("", "_fn", "_coef")]
    for key in configs:
        if key not in known:
            raise _wrong(str(key)[:100], "is no key of it", ", ".join(known), key)
    sites: dict[str, PerturbSite] = {}
    for site in _SITES:
        key = f"{site}_perturbation"
        if not _switch(key, configs.get(key, False)):
            continue
        for needed in (f"{key}_fn", f"{key}_coef"):
            if needed not in configs:
                raise _wrong(needed, f"is missing, and {key} is on", "a value", None)
        name, coefficient = configs[f"{key}_fn"], configs[f"{key}_coef"]
        if name not in _FUNCTIONS:
            raise _wrong(f"{key}_fn", "names no noise", " or ".join(_FUNCTIONS), name)
        is_number = isinstance(coefficient, (int, float)) and not isinstance(coefficient, bool)
        # Whole numbers that are no float fail, too.
        if not is_number or not 0 <= coefficient <= sys.float_info.max:
            raise _wrong(f"{key}_coef", "is no coefficient", "a number from 0", coefficient)
        sites[site] = {
            "kind": {"name": name, "params": {"coefficient": float(coefficient)}},
            "phases": list(phases),
        }
    if not sites:
        return None
    return perturb_of(sites, seed, steps)


def perturb_of(sites: dict[str, PerturbSite], seed: int | None, steps: int | None) -> Perturb:
    """Return the ``Perturb`` object; seed and steps take their defaults where they are None."""
    perturb: Perturb = {"sites": sites}
    if seed is not None:
        perturb["seed"] = seed
    if steps is not None:
        perturb["steps"] = steps
    return perturb


def _switch(key: str, value: Any) -> bool:
    text = str(value).lower()
    if not isinstance(value, (bool, str)) or text not in ("true", "false"):
        raise _wrong(key, "is no switch", "true, false, 'True' or 'False'", value)
    return text == "true"


def _wrong(key: str, how: str, expected: str, got: Any) -> ProtocolError:
    came = "" if got is None else f", got {got!r:.100}"
    return ProtocolError(
        "bad-parameter",
        f"{_FIELD}: {key} {how}. Expected {expected}{came}.",
        field=f"{_FIELD}.{key}",
        expected=expected,
        got=None if got is None else repr(got)[:200],
    )
