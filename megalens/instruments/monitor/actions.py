"""The actions of an alarm, as far as the training script allows them.

What is known of an optimizer at each step: its learning rate, how many steps it counts, and what of its
state was written since its last step.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any
from urllib.parse import urlsplit

from torch import Tensor
from torch.optim import Optimizer

from ...protocol import is_whole
from ...tracer.errors import TracerError, describe_error
from ...tracer.moments.points import ParamPoint
from ...tracer.own_hooks import remove_all, step_hook
from .table import OPTIMIZER_RATE, OPTIMIZER_STEPS, OPTIMIZER_WRITTEN

_MOST = 256


class OptimizerNumbers:
    """Reads numbers where a step of an optimizer begins and ends. Waits for no device.

    A rate or a count in a GPU's memory is not read. That a tensor was written is known by torch's count of
    its versions, which writes through ``.data`` leave as it is.
    """

    def __init__(self, optimizers: Sequence[Optimizer], params: Iterable[ParamPoint]) -> None:
        self._now: dict[str, float] = {}
        self._names = {id(point.parameter): point.name for point in params}
        # Of each optimizer where its state stands (name, parameter, key), and as what its last step left it;
        # nothing of the state itself, which somebody may move to another memory.
        self._places: dict[int, list[tuple[str, Any, str]]] = {}
        self._counts: dict[int, int] = {}
        self._left: dict[int, list[tuple[int, int]]] = {}
        # Written in the training thread, taken in the producer thread.
        self._steps: OrderedDict[int, dict[str, float]] = OrderedDict()
        begins, ends = step_hook(self._begins), step_hook(self._ends)
        self._handles = [each.register_step_pre_hook(begins) for each in optimizers]
        self._handles += [each.register_step_post_hook(ends) for each in optimizers]

    def step_ends(self, step: int) -> None:
        """Keep what was read for ``step``."""
        if self._now:
            self._steps[step], self._now = self._now, {}
            while len(self._steps) > _MOST:
                self._steps.popitem(last=False)

    def of(self, step: int) -> Mapping[str, float]:
        """Return the numbers of a step, once."""
        return self._steps.pop(step, {})

    def close(self) -> None:
        """Take the hooks off. Safe twice."""
        remove_all(self._handles)

    def _begins(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        rates = [rate for group in optimizer.param_groups if (rate := _number(group.get("lr"))) is not None]
        if rates:
            self._now[OPTIMIZER_RATE] = max(*rates, self._now.get(OPTIMIZER_RATE, 0.0))
        left, now = self._left.get(id(optimizer), []), self._versions(optimizer)
        if left != now and len(left) == len(now):
            for (name, _, _), before, after in zip(self._places[id(optimizer)], left, now, strict=True):
                # A new tensor in the place of an old one begins to count anew.
                if before[0] == after[0] and before[1] < after[1]:
                    key = OPTIMIZER_WRITTEN + name
                    self._now[key] = self._now.get(key, 0) + 1

    def _ends(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        state, here = optimizer.state, id(optimizer)
        if len(state) != self._counts.get(here):
            self._counts[here] = len(state)
            self._places[here] = [
                (self._names[id(parameter)], parameter, key)
                for parameter, values in state.items()
                if id(parameter) in self._names and isinstance(values, dict)
                for key, value in values.items()
                # The count of steps is judged by itself.
                if key != "step" and isinstance(value, Tensor)
            ]
        self._left[here] = self._versions(optimizer)
        for group in optimizer.param_groups:
            for parameter in group["params"][:1]:
                # Asked for by index, a state that is not there yet would be made.
                count = _number((optimizer.state.get(parameter) or {}).get("step"))
                if count is not None:
                    self._now[OPTIMIZER_STEPS] = min(count, self._now.get(OPTIMIZER_STEPS, count))

    def _versions(self, optimizer: Optimizer) -> list[tuple[int, int]]:
        """Return the identity and version of each tensor of its state; called twice a step."""
        get: Any = optimizer.state.get
        try:
            return [
                (id(value := get(parameter)[key]), value._version)
                for _, parameter, key in self._places.get(id(optimizer), ())
            ]
        except (AttributeError, KeyError, RuntimeError, TypeError):
            # It is gone, or of inference, which counts no versions.
            return []


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor):
        return float(value) if value.numel() == 1 and value.device.type == "cpu" else None
    return float(value) if isinstance(value, (int, float)) else None


_SEVERITIES = ("note", "warning", "critical")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_WEBHOOK_SECONDS = 5.0
_MOST_POSTED = 20


class TrainingStopped(Exception):
    """An alarm ended the training, as the script asked with ``actions={"stop": True}``.

    Raised at the end of a step, by ``with monitor.step():``.
    """


@dataclass(frozen=True)
class Action:
    """What to do when alarms are raised.

    Attributes
    ----------
    severity : {'critical', 'warning', 'note'}
        The lowest that counts.
    rules : tuple of str
        Only alarms of these rules; of any when empty.
    every : int
        At most once in so many steps.
    raise_tracing : int
        For so many steps every statistic that is measured is also recorded, at every step. 0: not.
    pause : bool
        Let the training wait between two steps until a viewer lets it go on.
    checkpoint : callable, optional
        Saves the training: called with the step, on rank 0, between two steps; the checkpoint is marked then.
    stop : bool
        End the training: ``with monitor.step():`` raises :class:`TrainingStopped` at the end of the step.
    webhook : str, optional
        Address to which the alarms are posted as JSON: https, or http of this machine.
    call : callable, optional
        Called with the list of alarms, on rank 0, between two steps.
    """

    severity: str = "critical"
    rules: tuple[str, ...] = ()
    every: int = 100
    raise_tracing: int = 0
    pause: bool = False
    checkpoint: Callable[[int], Any] | None = None
    stop: bool = False
    webhook: str | None = None
    call: Callable[[list[Any]], Any] | None = None

    def __post_init__(self) -> None:
        for name, fits, expected in (
            ("severity", self.severity in _SEVERITIES, "critical, warning or note"),
            (
                "rules",
                isinstance(self.rules, tuple) and all(isinstance(r, str) for r in self.rules),
                "names of rules",
            ),
            ("every", is_whole(self.every, 1), "a number of steps from 1"),
            ("raise_tracing", is_whole(self.raise_tracing), "a number of steps from 0"),
            ("pause", isinstance(self.pause, bool), "true or false"),
            ("stop", isinstance(self.stop, bool), "true or false"),
            ("checkpoint", self.checkpoint is None or callable(self.checkpoint), "a function of the step"),
            ("call", self.call is None or callable(self.call), "a function of the alarms"),
        ):  # fmt: skip
            if not fits:
                raise TracerError(f"actions.{name} must be {expected}, got {getattr(self, name)!r:.100}.")
        if self.webhook is not None:
            # Its path may have a secret: it is never shown.
            parts = urlsplit(self.webhook) if isinstance(self.webhook, str) else None
            local = parts is not None and parts.scheme == "http" and parts.hostname in _LOOPBACK
            if parts is None or not (local or (parts.scheme == "https" and parts.hostname)):
                raise TracerError(
                    "actions.webhook must be an https address, or an http address of this machine."
                )

    def of(self, alarms: Iterable[Any]) -> list[Any]:
        """Return the alarms that set it off; where rules are named, also what follows from another's."""
        least = _SEVERITIES.index(self.severity)
        return [
            alarm
            for alarm in alarms
            if (
                alarm.rule in self.rules and (alarm.follows or _SEVERITIES.index(alarm.severity) >= least)
                if self.rules
                else _SEVERITIES.index(alarm.severity) >= least
            )
        ]


def actions_from(given: Any) -> tuple[Action, ...]:
    """Return the actions that a script gave: one or several, each an :class:`Action` or a mapping of its
    attributes.

    Raises ``TracerError`` naming what is wrong.
    """
    if given is None:
        return ()
    several = [given] if isinstance(given, (Action, Mapping)) else given
    if not isinstance(several, Iterable) or isinstance(several, str):
        raise TracerError(
            f"actions must be an object such as {{'stop': True}}, or several, got {given!r:.100}."
        )
    known = [field.name for field in fields(Action)]
    found = []
    for each in several:
        if isinstance(each, Mapping):
            for name in each:
                if name not in known:
                    raise TracerError(f"There is no action {name!r:.50}. Choose of {', '.join(known)}.")
            rules = each.get("rules", ())
            each = Action(**{**each, "rules": tuple(rules) if isinstance(rules, list) else rules})
        if not isinstance(each, Action):
            raise TracerError(f"An action must be an object such as {{'stop': True}}, got {each!r:.100}.")
        found.append(each)
    return tuple(found)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Return None: no redirect is followed."""


def post(url: str, run: str | None, alarms: list[Any], warn: Callable[[str], None]) -> threading.Thread:
    """Post alarms as JSON from a thread of its own. A failure is reported without the address's path."""
    rows = [{k: _plain(v) for k, v in asdict(alarm).items()} for alarm in alarms[:_MOST_POSTED]]
    body = json.dumps({"run": run, "count": len(alarms), "alarms": rows}, allow_nan=False).encode()

    def send() -> None:
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=_WEBHOOK_SECONDS) as answer:
                answer.read(1)
        except Exception as error:
            reason = describe_error(error).replace(url, "…")
            warn(f"The webhook at {urlsplit(url).hostname} could not be told of an alarm: {reason}")

    thread = threading.Thread(target=send, name="megalens-webhook", daemon=True)
    thread.start()
    return thread


def _plain(value: Any) -> Any:
    # JSON has no NaN and no infinity.
    return value if not isinstance(value, float) or value - value == 0 else str(value)
