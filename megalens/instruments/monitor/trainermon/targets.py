"""What TrainerMon's targets choose, and the names under which it is written."""

from __future__ import annotations

import re

from .config import MonitorConfig

__all__ = ["squashed", "wants_module", "wants_parameter"]

# The last occurrence counts, of the first of them that there is.
_RULES = tuple(
    re.compile(rule)
    for rule in (r".*\.(layers?\..*)", r".*\.(embeddings?\..*)", r".*\.(final.*)", r".*\.(output.*)", r".*\.(norm.*)")
)  # fmt: skip


def squashed(name: str) -> str:
    """Return a name from its layer on: ``module.layers.0.mlp`` is ``layers.0.mlp``."""
    for rule in _RULES:
        if (found := rule.fullmatch(name)) is not None:
            return found[1]
    return name


def _targets(config: MonitorConfig, chunk: int) -> list[str]:
    several = [each.split(":", 1) if ":" in each else [str(chunk), each] for each in config.targets]
    return [name for at, name in several if at == str(chunk)]


def wants_module(config: MonitorConfig, chunk: int, name: str) -> bool:
    """Whether a module's activations are collected: those of all, or a target's very name."""
    return config.everything or bool({name, squashed(name)} & {*_targets(config, chunk)})


def wants_parameter(config: MonitorConfig, chunk: int, name: str) -> bool:
    """Whether a parameter is collected: its name begins with that of a target, of which there may be none."""
    several = _targets(config, chunk) if config.targets else [""]
    return any(name.startswith(each) or squashed(name).startswith(each) for each in several)
