"""The peers' way to say what is perturbed: the ``disturbance_configs`` dictionary."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import ProtocolError, must_be
from .messages_generated import Perturb, PerturbSite, Phase

__all__ = ["perturb_from_disturbance", "perturb_of"]

_SITES = ("weight", "calculation", "system")
_FUNCTIONS = ("noise1", "noise2")
_FIELD = "disturbance_configs"


def perturb_from_disturbance(
    configs: Mapping[str, Any],
    *,
    phases: Sequence[Phase] = ("train", "eval", "generate"),
    seed: int | None = None,
    steps: int | None = None,
) -> Perturb | None:
    """Return the ``Perturb`` object that a ``disturbance_configs`` dictionary means, or None where all of it is off.

    Parameters
    ----------
    configs : mapping
        For each X of ``weight``, ``calculation`` and ``system``: ``X_perturbation`` (a boolean or the text "True" or "False", in any case; off when absent),
        ``X_perturbation_fn`` (``noise1`` or ``noise2``) and ``X_perturbation_coef``. The latter two are not looked at where X is off, as the peers do.
    phases : sequence of str
        Phases in which it is done. A peer does it whenever the model runs.
    seed, steps : int, optional
        What the dictionary has no words for.

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
