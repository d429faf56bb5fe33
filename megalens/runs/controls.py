"""Changing a live run: what is traced, waiting, perturbations, a budget."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..protocol import (
    Compressor,
    Perturbation,
    Tile,
    check_settings_size,
    layers_text,
    named_flags,
    parse_budget,
    perturb_from_disturbance,
    perturbation_from_setting,
    pipeline_settings,
    read_flags,
    read_setting,
    some_of,
)
from ..protocol.messages_generated import (
    ConfigPatch,
    FlagInfo,
    FlagSetting,
    Hello,
    Mode,
    Perturb,
    PerturbSite,
    SiteInfo,
)
from ..protocol.perturbations import perturb_of
from .errors import as_arguments, as_int, bad_argument, bad_parameter
from .query import LayerChoice

_PEERS = "_perturbation"


def build_perturb(
    sites: Mapping[str, Any],
    *,
    layers: LayerChoice = None,
    phases: str | Sequence[str] | None = None,
    seed: int | None = None,
    steps: int | None = None,
) -> Perturb | None:
    """Return the ``Perturb`` object, or None where a ``disturbance_configs`` dictionary has everything off.

    Raises ``ClientError`` naming the argument, or ``ProtocolError`` naming a kind's parameter or a
    dictionary's key.
    """
    if not isinstance(sites, Mapping) or not sites:
        raise bad_argument("sites", "a dictionary such as {'system': Noise1(0.01)}", sites)
    seed = None if seed is None else as_int(seed, "seed")
    steps = None if steps is None else as_int(steps, "steps", 1)
    extras: dict[str, Any] = {}
    if layers is not None:
        extras["layers"] = layers_text(layers)
    if phases is not None:
        extras["phases"] = some_of(phases)
    if any(isinstance(name, str) and _PEERS in name for name in sites):
        peers = perturb_from_disturbance(sites)
        if peers is None:
            return None
        chosen = peers["sites"]
    else:
        chosen = {str(name): _site(str(name), given) for name, given in sites.items()}
    for site in chosen.values():
        site.update(extras)  # type: ignore[typeddict-item]
    return perturb_of(chosen, seed, steps)


def _site(name: str, given: Any) -> PerturbSite:
    field = f"sites.{name}"
    if isinstance(given, Perturbation):
        return {"kind": given.to_setting()}
    if isinstance(given, str):
        return {"kind": perturbation_from_setting({"name": given}, field).to_setting()}
    if not isinstance(given, Mapping):
        raise bad_argument(field, "a kind such as Noise1(0.01), its name, or a dict with kind in it", given)
    site: Any = {"kind": dict(given)} if "name" in given else dict(given)
    kind = site.get("kind")
    if isinstance(kind, Perturbation):
        site["kind"] = kind.to_setting()
    elif isinstance(kind, str):
        site["kind"] = perturbation_from_setting({"name": kind}, field).to_setting()
    elif isinstance(kind, Mapping):
        # Also what another version's training knows may be named: the hub checks that.
        site["kind"] = dict(kind)
    else:
        raise bad_argument(
            field, "a dict with kind in it, such as {'kind': Noise1(0.01), 'layers': '2-3'}", given
        )
    if "layers" in site:
        site["layers"] = layers_text(site["layers"])
    if "phases" in site:
        site["phases"] = some_of(site["phases"])
    unknown = sorted(set(site) - {"kind", "layers", "phases"})
    if unknown:
        raise bad_argument(field, "a dict of kind, layers and phases", given)
    return site  # type: ignore[no-any-return]


def build_patch(
    config: Mapping[str, FlagSetting],
    asked: Mapping[str, Any],
    *,
    infos: Mapping[str, FlagInfo] | None = None,
    **common: Any,
) -> dict[str, FlagSetting | None]:
    """Return the settings by flag that ``run.configure(...)`` asks for.

    ``config`` has the settings in force, which ``True`` keeps; ``infos`` the compressor with which each flag
    is switched on; ``common`` the settings of every flag that does not say its own. Raises ``ClientError``
    naming the argument.
    """

    def suited(flag: str) -> Any:
        info = (infos or {}).get(flag)
        return (info and info.get("compressor")) or Tile().to_setting()

    with as_arguments():
        if not asked:
            raise bad_parameter(
                "No flag was named. Write run.configure(HiddenStates=Tile(96)), or HiddenStates=False to "
                "switch it off."
            )
        given = {name: value for name, value in common.items() if value is not None}
        return read_flags(
            asked, now=config, suited=suited, common=read_setting(given), spell="{}=…", prefix=""
        )


class Controls(ABC):
    """The part of a run that acts on the training. Each call returns the step at which it took effect, on
    every rank alike.

    The training script says what it allows (``controls``); a budget is always allowed. What is not allowed
    raises ``ProtocolError`` with code ``refused``, which names what the script would have to say. A recorded
    or ended run raises ``ClientError``.
    """

    _hello: Hello

    @property
    def controls(self) -> list[str]:
        """What the training script allows: ``pause``, ``watched``, ``perturb``, ``generate``."""
        return list(self._hello.get("controls", []))

    @property
    def sites(self) -> dict[str, SiteInfo]:
        """What can be perturbed, by name: ``title``, ``layers``, ``kinds``, or the ``reason`` why not."""
        return {info["name"]: info for info in self._hello.get("sites", [])}

    @property
    def mode(self) -> Mode:
        """Whether the training is asked to wait: ``paused``, ``while_watched``. Empty when it just trains."""
        return {**self._hello["config"].get("mode", {})}

    @property
    def instruments(self) -> dict[str, dict[str, Any]]:
        """Settings of instruments by name, such as ``monitor`` (rules) and ``moments`` (how often)."""
        return {name: {**each} for name, each in self._hello["config"].get("instruments", {}).items()}

    @property
    def perturbation(self) -> Perturb | None:
        """The armed perturbation, with its last step in ``until``; None when nothing is perturbed."""
        perturb = self._hello["config"].get("perturb")
        return None if perturb is None else {**perturb}

    def configure(
        self,
        which: Mapping[str, Compressor | Mapping[str, Any] | bool | None] | Iterable[str] | None = None,
        /,
        *,
        layers: LayerChoice = None,
        every: int | None = None,
        samples: int | str | None = None,
        phases: str | Sequence[str] | None = None,
        timeout: float = 30.0,
        passes: str | Sequence[str] | None = None,
        replicas: str | None = None,
        instruments: Mapping[str, Mapping[str, Any]] | None = None,
        timeline: str | Mapping[str, Any] | None = None,
        pipeline: Any = None,
        **flags: Compressor | Mapping[str, Any] | bool | None,
    ) -> int:
        """Change what is traced, while training goes on.

        Parameters
        ----------
        which : mapping or iterable of str, optional
            Flags by name as below, or names of flags, which are switched on:
            ``run.configure("HiddenStates")``.
        layers : int, iterable of int or str, optional
            Layers for every flag named here that does not say its own; all when absent. So are the others up
            to ``replicas``.
        every : int, optional
            Trace every n-th step.
        samples : int or "all", optional
            How many samples of each micro-batch to keep.
        phases : str or sequence of str, optional
            ``train``, ``eval``, ``generate``.
        timeout : float
            Seconds to wait until it is applied.
        passes : str or sequence of str, optional
            ``forward``, ``backward`` (the gradient of the loss with respect to the same tensor), or both.
        replicas : {"first", "all"}, optional
            Whether every data-parallel replica is traced, or the first only.
        instruments : mapping, optional
            Settings of instruments by name: ``{"monitor": {"rules": {"jump": {"threshold": 12.0}}},
            "moments": {"every": {"grad": 0}}}``. What is not named stays, None takes one back to its default.
        timeline : str or mapping, optional
            How finely steps are timed: ``"off"``, ``"steps"``, ``"phases"``, ``"layers"`` or
            ``"operations"``, or ``{"granularity": "phases", "every": 10}``.
        pipeline : str, mapping or plan, optional
            The order of a pipeline's operations, where the script has a ``megalens.pipeline.DynamicSchedule``
            that says ``tracer=``: ``"greedy"``, ``"adaptive"``, the name of a schedule, or a plan.
        **flags
            Trace points by name: a compressor such as ``Tile(96)``, ``True`` (on, as it is set now or with
            what suits it), ``False`` or ``None`` (off), or a whole setting as a dict. Flags that are not
            named stay as they are.

        Returns
        -------
        int
            The step at which it took effect.

        Raises
        ------
        ProtocolError
            The hub's or the tracer's refusal, with the field at fault. Nothing is changed then.
        ClientError
            When an argument is wrong, the run is not live, or no answer came in time.
        """
        with as_arguments():
            asked = {**named_flags(which if which is not None else {}, "What to trace"), **flags}
        settings: ConfigPatch = {"flags": {}}
        if timeline is not None:
            spans = {"granularity": timeline} if isinstance(timeline, str) else timeline
            instruments = {**(instruments or {}), "timeline": spans}
        if pipeline is not None:
            instruments = {**(instruments or {}), "pipeline": pipeline_settings(pipeline)}
        if instruments is not None:
            with as_arguments():
                check_settings_size(instruments)
            settings["instruments"] = {name: {**each} for name, each in instruments.items()}
            if not asked:
                return self._configure(settings, timeout)
        settings["flags"] = build_patch(
            self._hello["config"]["flags"],
            asked,
            infos={info["name"]: info for info in self._hello["flags"]},
            layers=layers,
            every=every,
            samples=samples,
            phases=phases,
            passes=passes,
            replicas=replicas,
        )
        return self._configure(settings, timeout)

    def pipeline(self, order: Any, timeout: float = 30.0) -> int:
        """Run the pipeline's steps in another order, on all ranks at once.

        Parameters
        ----------
        order : str, mapping or plan
            ``"greedy"``, ``"adaptive"``, the name of a schedule such as ``"breadth_first"``, a plan of
            :func:`megalens.pipeline.plan`, or ``"script"``: as the script says.
        timeout : float
            Seconds to wait until it is applied.

        Returns
        -------
        int
            The step from which on it is in force on all ranks; the name of a schedule is planned meanwhile,
            and in force a few steps later.

        Raises
        ------
        ProtocolError
            ``bad-parameter`` for a plan that is wrong or of another pipeline, and where the script has no
            ``DynamicSchedule(…, tracer=tracer)``. Nothing is changed then.
        """
        # The first rank gets it at that step and tells the others for the next one.
        return self.configure(pipeline=order, timeout=timeout) + 1

    def pause(self, timeout: float = 30.0) -> int:
        """Let the training wait before its next step.

        Parameters
        ----------
        timeout : float
            Seconds to wait until it is so.
        """
        return self._configure({"flags": {}, "mode": {"paused": True}}, timeout)

    def resume(self, timeout: float = 30.0) -> int:
        """Let a paused training go on."""
        return self._configure({"flags": {}, "mode": {"paused": False}}, timeout)

    def advance(self, steps: int = 1, timeout: float = 30.0) -> int:
        """Take some steps, then wait.

        Returns the first of them: ``run.wait(first + steps - 1)`` waits for the last.

        Parameters
        ----------
        steps : int
            How many.
        timeout : float
            Seconds to wait until the first begins.
        """
        return self._configure(
            {"flags": {}, "mode": {"paused": True, "steps": as_int(steps, "steps", 1)}}, timeout
        )

    def watched_only(self, on: bool = True, timeout: float = 30.0) -> int:
        """Let the training go on only while a viewer, such as this one, is attached; ``False`` ends that."""
        if not isinstance(on, bool):
            raise bad_argument("on", "True or False", on)
        return self._configure({"flags": {}, "mode": {"while_watched": on}}, timeout)

    def perturb(
        self,
        sites: Mapping[str, Perturbation | Mapping[str, Any] | str | bool | float],
        *,
        layers: LayerChoice = None,
        phases: str | Sequence[str] | None = None,
        seed: int | None = None,
        steps: int | None = None,
        timeout: float = 30.0,
    ) -> int:
        """Arm a perturbation, in place of the one that was armed. It ends by itself.

        Parameters
        ----------
        sites : mapping
            By name of the site (``weight``, ``calculation``, ``system``; see :attr:`sites`): a kind such as
            ``Noise1(0.01)``, its name, or a ``PerturbSite`` as a dict. Or a ``disturbance_configs``
            dictionary as the peers take it.
        layers : int, iterable of int or str, optional
            Layers at every site named here; all when absent.
        phases : str or sequence of str, optional
            ``train``, ``eval``, ``generate``. The training steps only when absent; for a
            ``disturbance_configs`` dictionary all.
        seed : int, optional
            The same seed gives the same perturbation.
        steps : int, optional
            Training steps after which it ends; 100 when absent.
        timeout : float
            Seconds to wait until it is armed.

        Raises
        ------
        ClientError, ProtocolError
            With the argument or field at fault. Nothing is changed then.
        """
        perturb = build_perturb(sites, layers=layers, phases=phases, seed=seed, steps=steps)
        return self._configure({"flags": {}, "perturb": perturb}, timeout)

    def disarm(self, timeout: float = 30.0) -> int:
        """End the perturbation that is armed. Weights are as if it had never been."""
        return self._configure({"flags": {}, "perturb": None}, timeout)

    def budget(self, limit: str | float | None, timeout: float = 30.0) -> int:
        """Limit what tracing may cost. ``run.status["budget"]`` says what was measured and what was given up.

        Parameters
        ----------
        limit : str, float or None
            ``"1%"`` or ``1.0`` of step time; None takes the limit away.
        timeout : float
            Seconds to wait until it is in force.
        """
        return self._configure({"flags": {}, "budget": parse_budget(limit)}, timeout)

    @abstractmethod
    def _configure(self, patch: ConfigPatch, timeout: float) -> int:
        """Send a ``ConfigPatch`` and return the step at which it was applied."""
