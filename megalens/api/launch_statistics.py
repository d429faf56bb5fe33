"""For launch scripts: which statistics are logged, and where to, by the names that Megatron-LM's own launch scripts have."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..tracer.errors import TracerError

__all__ = ["LaunchStatistics", "add_statistics_arguments", "statistics_settings"]

_INTERVALS = {
    "param": ("log_param_stats_interval", "parameters, after each step's update"),
    "grad": ("log_wgrad_stats_interval", "gradients of parameters, before clipping"),
    "activation": (
        "log_activation_stats_interval",
        "inputs and outputs of linear layers, embeddings and routers",
    ),
    "dgrad": ("log_dgrad_stats_interval", "gradients at these inputs and outputs"),
    "residual": ("log_residual_stats_interval", "the residual stream between the layers"),
    "residual_dgrad": ("log_residual_grad_stats_interval", "its gradients"),
}
_FOLDER = "statistics_log_dir"
# Whether the script's own parser had some of them before.
_OWN = "megalens_statistics_of_script"


@dataclass(frozen=True)
class LaunchStatistics:
    """What command line and environment say.

    Attributes
    ----------
    intervals : mapping
        By statistic: every how many steps, above 0.
    folder : str or None
        Into which JSON lines are written.
    writes : bool
        Whether it is ours to write them: a script that has these arguments itself does so.
    """

    intervals: Mapping[str, int] = field(default_factory=dict)
    folder: str | None = None
    writes: bool = True


def add_statistics_arguments(parser: argparse.ArgumentParser, group: Any) -> None:
    """Add ``--log-param-stats-interval`` and its like to ``group``, leaving out those that ``parser`` has."""
    known = parser._option_string_actions
    options: dict[str, tuple[str, type, str, str]] = {
        f"--{name.replace('_', '-')}": (
            name,
            int,
            "STEPS",
            f"log statistics of {words} every so many steps; 0 is off",
        )
        for name, words in _INTERVALS.values()
    }
    options[f"--{_FOLDER.replace('_', '-')}"] = (
        _FOLDER,
        str,
        "FOLDER",
        "folder into which statistics are also written as JSON lines (default: --tensorboard-dir, else --save)",
    )
    for option, (name, kind, metavar, words) in options.items():
        if option in known:
            parser.set_defaults(**{_OWN: True})
        else:
            group.add_argument(
                option, dest=name, type=kind, default=argparse.SUPPRESS, metavar=metavar, help=words
            )


def statistics_settings(args: argparse.Namespace | None, environment: Mapping[str, str]) -> LaunchStatistics:
    """Return what is to be logged, and where to.

    Parameters
    ----------
    args : argparse.Namespace or None
        The parsed arguments; also those of Megatron-LM, of which ``tensorboard_dir`` and ``save`` stand in for a folder that is not given.
    environment : mapping
        ``MEGALENS_`` and the name of the argument, over which the argument has precedence.

    Raises
    ------
    TracerError
        When a variable is no number, naming it.
    """
    own = bool(getattr(args, _OWN, False))
    intervals: dict[str, int] = {}
    for stat, (name, _) in _INTERVALS.items():
        every = getattr(args, name, None)
        # A parser of the script's own says 0 where nothing was given.
        if every is None or (own and every == 0):
            every = _number(environment, f"MEGALENS_{name.upper()}")
        if every is not None and every > 0:
            intervals[stat] = every
    named = getattr(args, _FOLDER, None) or environment.get(f"MEGALENS_{_FOLDER.upper()}") or None
    ours = not own or bool(environment.get(f"MEGALENS_{_FOLDER.upper()}"))
    fallback = getattr(args, "tensorboard_dir", None) or getattr(args, "save", None)
    return LaunchStatistics(intervals, named or fallback, ours)


def _number(environment: Mapping[str, str], variable: str) -> int | None:
    text = environment.get(variable)
    if not text:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise TracerError(f"{variable}={text!r:.100} cannot be read: {error}.") from error
