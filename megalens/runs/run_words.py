"""A run in a few lines."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from .errors import bad_parameter

if TYPE_CHECKING:
    from pathlib import Path

    from ..protocol.messages_generated import FlagSetting, Layout, Mode, Model, Perturb
_MOST_FLAGS = 24
_PLACES = ("rank", "node", "host", "worker", "gpu", "proc", "task")
_SIGNS = ("-", "_", ".")


class _DescribedRun(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def live(self) -> bool: ...
    @property
    def folder(self) -> Path | None: ...
    @property
    def state(self) -> str: ...
    @property
    def step(self) -> int: ...
    @property
    def model(self) -> Model | None: ...
    @property
    def layout(self) -> Layout | None: ...
    @property
    def config(self) -> dict[str, FlagSetting]: ...
    @property
    def logged(self) -> dict[str, int]: ...
    @property
    def perturbation(self) -> Perturb | None: ...
    @property
    def mode(self) -> Mode: ...
    @property
    def warnings(self) -> list[str]: ...


def job_name(name: str) -> str:
    """Return the name of a run's job: without what tells its rank or node (``-rank3``, ``-7``)."""
    job = name.rstrip("0123456789")
    if job == name:
        return name
    for ends in (_SIGNS, _PLACES, _SIGNS):
        job = next((job.removesuffix(end) for end in ends if job.endswith(end)), job)
    return job or name


def attempt_words(attempt: str, step: int) -> str:
    """Return a sentence on where the steps of an earlier attempt are."""
    return f"Steps from {step} on were trained again; what was recorded of them before is the run {attempt}."


def lacking_words(missing: Sequence[Sequence[int]]) -> str:
    """Return a sentence on the steps that a recording lacks: at least one range, both ends inclusive."""
    spans = [str(first) if first == last else f"{first} to {last}" for first, last in missing[:5]]
    more = f" and {len(missing) - 5} more ranges" if len(missing) > 5 else ""
    several = len(missing) > 1 or missing[0][0] != missing[0][1]
    return f"The recording lacks step{'s' if several else ''} {', '.join(spans)}{more}."


def unknown_flag(name: str, flags: Collection[str]) -> str:
    """Return the sentence, as in the views, that lists the flags where one is unknown."""
    more = f", and {len(flags) - _MOST_FLAGS} more" if len(flags) > _MOST_FLAGS else ""
    return f"This run has no flag {name!r:.100}. It has {', '.join(list(flags)[:_MOST_FLAGS])}{more}."


def check_flag(flags: Collection[str], flag: object) -> None:
    """Raise :class:`ClientError` where a run that lists its flags has none of this name."""
    if isinstance(flag, str) and flags and flag not in flags:
        raise bad_parameter(unknown_flag(flag, flags), "flag")


def run_words(run: _DescribedRun) -> Iterator[str]:
    """Return the lines on what a run is, its progress, and what is traced, logged and perturbed."""
    kind = "live" if run.live else "recorded" if run.folder else "ended"
    yield f"{run.name} · {kind} · {run.state} · step {run.step}"
    model, layout = run.model, run.layout
    if model:
        hidden = f" · {model['hidden']} hidden" if model.get("hidden") else ""
        where = f" · TP {layout['tp']} PP {layout['pp']} DP {layout['dp']}" if layout else ""
        # A model whose layers were not told apart has 0.
        layers = f" · {model['layers']} layers" if model["layers"] else ""
        yield f"  {model['name']}{layers}{hidden}{where}"
    tracing = ", ".join(f"{flag} {_setting(setting)}" for flag, setting in run.config.items())
    # Files of another logger have nothing that could be traced.
    if tracing or (model and not run.logged):
        yield f"  tracing: {tracing or 'nothing'}"
    if run.logged:
        yield f"  statistics: {_logged(run.logged)}"
    if run.perturbation:
        yield f"  PERTURBED: {_perturbation(run.perturbation)}"
    if run.mode.get("while_watched"):
        yield "  trains only while somebody watches"
    yield from (f"  {warning}" for warning in run.warnings)


def _setting(setting: FlagSetting) -> str:
    compressor = setting["compressor"]
    params = ", ".join(str(value) for value in compressor.get("params", {}).values())
    layers = setting.get("layers", "all")
    return f"{compressor['name']}({params})" + ("" if layers == "all" else f" layers {layers}")


def _logged(logged: Mapping[str, int]) -> str:
    together: dict[int, list[str]] = {}
    for stat, every in logged.items():
        together.setdefault(every, []).append(stat)
    return "; ".join(
        f"{', '.join(stats)} every {'step' if every == 1 else f'{every} steps'}"
        for every, stats in sorted(together.items())
    )


def _perturbation(perturb: Perturb) -> str:
    sites = []
    for name, site in perturb["sites"].items():
        values = ", ".join(str(value) for value in (site["kind"].get("params") or {}).values())
        layers = site.get("layers", "all")
        sites.append(
            f"{name} {site['kind']['name']}({values})" + ("" if layers == "all" else f" layers {layers}")
        )
    until = f" until step {perturb['until']}" if "until" in perturb else ""
    return f"{'; '.join(sites)}{until}"
