"""For launch scripts: the same settings as command-line arguments and as environment variables."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from ..protocol.settings import flags_from_text, words_from_text
from ..tracer.errors import TracerError
from ..tracer.tensors.plan import CONTROLS
from ..tracer.tracer import Tracer
from .statistics import log_statistics
from .trace import trace

__all__ = ["add_arguments", "trace_from", "statistics_settings"]

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


# For launch scripts: which statistics are logged, and where to, by the names that Megatron-LM's own launch
# scripts have.
@dataclass(frozen=True)
class LaunchStatistics:
    """The statistics that command line and environment ask for.

    Attributes
    ----------
    intervals : mapping
        By statistic: steps between measurements, above 0.
    folder : str or None
        Into which JSON lines are written.
    writes : bool
        Whether we write them: a script that has these arguments itself does so.
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
        "folder into which statistics are also written as JSON lines (default: --tensorboard-dir, else "
        "--save)",
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

    ``args`` may also be those of Megatron-LM, whose ``tensorboard_dir`` and ``save`` replace a missing
    folder. ``environment`` has ``MEGALENS_`` and the name of an argument, which has precedence. Raises
    ``TracerError`` naming a variable that is no number.
    """
    own = bool(getattr(args, _OWN, False))
    intervals: dict[str, int] = {}
    for stat, (name, _) in _INTERVALS.items():
        every = getattr(args, name, None)
        # The script's own parser has 0 where nothing was given.
        if every is None or (own and every == 0):
            every = _from_environment(environment, {name: int}).get(name)
        if every is not None and every > 0:
            intervals[stat] = every
    named = getattr(args, _FOLDER, None) or environment.get(f"MEGALENS_{_FOLDER.upper()}") or None
    ours = not own or bool(environment.get(f"MEGALENS_{_FOLDER.upper()}"))
    fallback = getattr(args, "tensorboard_dir", None) or getattr(args, "save", None)
    return LaunchStatistics(intervals, named or fallback, ours)


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError("a port is a number from 0 to 65535")
    return value


def _count(text: str) -> int | None:
    return None if text == "all" else int(text)


# Keyword of trace(), conversion from text, and help.
_SETTINGS: dict[str, tuple[Callable[[str], Any], str]] = {
    "name": (str, "name of the run"),
    "flags": (
        flags_from_text,
        "what to trace from the first step on: names with commas, or a JSON object of settings",
    ),
    "layers": (str, "layers to trace, such as 0-3,7 (default: all)"),
    "every": (int, "trace every n-th step (default: 1)"),
    "samples": (_count, "first samples of each micro-batch that are kept, or all (default: 1)"),
    "first_step": (
        int,
        "number of the first step, of a training that goes on from a checkpoint (default: 1)",
    ),
    "record": (str, "folder into which the run is recorded"),
    "record_bytes": (
        int,
        "what the recording may take; its oldest steps are given up for newer ones (default: no bound)",
    ),
    "record_mode": (
        lambda text: int(text, 8),
        "permissions of the run's folder in octal digits, such as 750 (default: its owner's alone)",
    ),
    "resume": (
        str,
        "run folder, or id of a run, whose recording goes on: of a training that restarts from a "
        "checkpoint, with the first step",
    ),
    "allow": (words_from_text, f"what viewers may do beyond looking, with commas: {', '.join(CONTROLS)}"),
    "budget": (str, "what tracing may cost, such as 1%%"),
    "instruments": (words_from_text, "names of further instruments that watch the steps, with commas"),
    "timeline": (
        str,
        "how finely steps are timed: steps, phases, layers or operations (default: off)",
    ),
    "hub_host": (str, "address on which the hub listens (default: loopback)"),
    "linger": (float, "seconds for which the hub stays for viewers once the training is over"),
}

# Settings of tracing that statistics do not have.
_TRACING = ("flags", "layers", "every", "samples", "adapter")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--megalens``, ``--megalens-port``, ``--megalens-flags`` and their like to a launch script's
    parser.

    ``--tensor-tracer-port PORT`` means the same as ``--megalens-port PORT``: trace, with the hub on this port
    of rank 0's host. Each also has an environment variable (``MEGALENS_FLAGS`` for ``--megalens-flags``),
    over which the argument has precedence.

    ``--log-param-stats-interval``, ``--log-wgrad-stats-interval``, ``--log-activation-stats-interval``,
    ``--log-dgrad-stats-interval``, ``--log-residual-stats-interval``, ``--log-residual-grad-stats-interval``
    and ``--statistics-log-dir`` log statistics (``MEGALENS_LOG_PARAM_STATS_INTERVAL`` and so on). Those that
    the parser has already are left as they are, and followed: whoever added them writes files of their own,
    so that these statistics are then shown and recorded only.
    """
    group = parser.add_argument_group("megalens", "see inside the run from JupyterLab")
    group.add_argument("--megalens", action="store_true", default=None, help="trace this run")
    group.add_argument(
        "--megalens-port",
        "--tensor-tracer-port",
        dest="megalens_port",
        type=_port,
        metavar="PORT",
        help="trace this run, with the hub on this port; 0 takes any free one",
    )
    for name, (kind, words) in _SETTINGS.items():
        group.add_argument(
            f"--megalens-{name.replace('_', '-')}",
            dest=f"megalens_{name}",
            type=kind,
            # None is a value here: all samples.
            default=argparse.SUPPRESS,
            metavar=name.upper(),
            help=words,
        )
    add_statistics_arguments(parser, group)


def trace_from(
    args: argparse.Namespace | None,
    model: nn.Module | list[nn.Module],
    environment: Mapping[str, str] = os.environ,
    *,
    optimizer: Any = None,
    loss_scale: Any = None,
    samples_per_step: Any = None,
    **settings: Any,
) -> Tracer:
    """Return :func:`megalens.trace` as the arguments and the environment want it, with statistics where they
    ask for some; a tracer that does nothing where neither asks for anything.

    Parameters
    ----------
    args : argparse.Namespace or None
        With what :func:`add_arguments` added; None for the environment alone.
    model : torch.nn.Module or list of them
        As for :func:`megalens.trace`.
    environment : mapping
        ``MEGALENS=1`` or ``MEGALENS_PORT`` trace; the others are ``MEGALENS_`` and the setting's name.
    optimizer : optional
        What updates the model, for statistics of gradients; so are the next two.
    loss_scale : GradScaler, number or callable, optional
        By what the loss is multiplied, where the optimizer does not say.
    samples_per_step : int or callable, optional
        ``samples`` of :func:`megalens.log_statistics`; ``args.global_batch_size`` where it is absent and does
        not grow.
    **settings
        For :func:`megalens.trace`, where neither argument nor variable says anything else.

    Raises
    ------
    TracerError
        When a variable cannot be read, naming it, or when the model cannot have statistics that were asked
        for.
    """
    statistics = statistics_settings(args, environment)
    kinds = {name: kind for name, (kind, _) in _SETTINGS.items()} | {"port": _port}
    given = {**settings, **_from_environment(environment, kinds)}
    for name in (*_SETTINGS, "port"):
        if hasattr(args, f"megalens_{name}"):
            given[name] = getattr(args, f"megalens_{name}")
    port = given.pop("port", None)
    asked = getattr(args, "megalens", None) or environment.get("MEGALENS", "0") not in ("", "0")
    traces = asked or port is not None
    if not traces and not statistics.intervals:
        return trace(model, hub=None)
    given["hub_port"] = port or 0
    if not statistics.intervals:
        return trace(model, **given)
    if samples_per_step is None and not getattr(args, "rampup_batch_size", None):
        samples_per_step = getattr(args, "global_batch_size", None)
    wanted = {
        **statistics.intervals,
        "loss_scale": loss_scale,
        "samples": samples_per_step,
        "jsonl": statistics.folder if statistics.writes else None,
        "adapter": given.get("adapter"),
    }
    if traces:
        tracer = trace(model, **given)
        try:
            log_statistics(model, optimizer, tracer=tracer, **wanted)
        except BaseException:
            tracer.close()
            raise
    else:
        # Also of a model without known trace points.
        options = {name: value for name, value in given.items() if name not in _TRACING}
        tracer = log_statistics(model, optimizer, **options, **wanted).tracer
    if statistics.writes and statistics.folder is None:
        tracer.warn(
            "Statistics are shown, and recorded where the run is, but not written as JSON lines: give "
            "--statistics-log-dir, --tensorboard-dir or --save to have them so."
        )
    return tracer


def _from_environment(
    environment: Mapping[str, str], kinds: Mapping[str, Callable[[str], Any]]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, kind in kinds.items():
        variable = f"MEGALENS_{name.upper()}"
        text = environment.get(variable)
        if text:
            try:
                found[name] = kind(text)
            except (ValueError, argparse.ArgumentTypeError) as error:
                raise TracerError(f"{variable}={text!r:.100} cannot be read: {error}.") from error
    return found
