"""The order of a pipeline as a setting of the run, so that viewers can change it like what is traced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...protocol import ProtocolError, pipeline_settings
from ...protocol.messages_generated import Status
from ...tracer.instrument import Instrument
from .errors import PipelineError
from .orders import NAMES, name_of

if TYPE_CHECKING:
    from .order_control import OrderControl

_SAID = 5
_ORDERS = ("script", "greedy", "adaptive", *NAMES, "plan")


class PipelineInstrument(Instrument):
    """Changes a schedule's order by the run's settings, on all ranks at one step, the one after they apply.

    The name of a schedule is planned on the first rank meanwhile, and in force on all at a later step.
    """

    name = "pipeline"
    title = "Pipeline"

    def __init__(self, control: OrderControl) -> None:
        self._control = control
        self._settings: Mapping[str, Any] = {"order": "script"}

    @property
    def watches(self) -> bool:
        return False

    def settings(self) -> Mapping[str, Any]:
        """Return the last request; ``script`` is the script's own order."""
        return self._settings

    def schema(self) -> Mapping[str, Any]:
        return {
            "type": "object",
            "properties": {
                "order": {
                    "type": "string",
                    "enum": list(_ORDERS),
                    "default": "script",
                    "title": "Order",
                    "description": "script: as the training script says; greedy: what has arrived, backward "
                    "first; adaptive: what was fastest so far; plan: the one given; else a schedule by name.",
                },
                "prefer": {"type": "string", "enum": ["breadth", "depth"], "title": "Of greedy, first"},
                "in_flight": {"type": "integer", "minimum": 1, "title": "Of greedy, micro-batches under way"},
                "plan": {"type": "object", "title": "Plan"},
            },
        }

    def check(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        found = {name: value for name, value in settings.items() if value is not None}
        for name in found:
            if name not in ("order", "prefer", "in_flight", "plan"):
                raise _wrong(
                    f"The instrument pipeline has order, plan, prefer and in_flight, got {name!r:.80}.", name
                )
        order = found.setdefault("order", "script")
        plan = found.get("plan")
        # Whoever may change settings names no files of this machine.
        if order not in _ORDERS:
            raise _wrong(f"order must be one of {', '.join(_ORDERS)}, got {order!r:.80}.", "order")
        if plan is not None and not isinstance(plan, Mapping):
            raise _wrong(f"plan must be an object, got a {type(plan).__name__}.", "plan")
        if plan is not None and order != "plan":
            # The changed one of the two is meant.
            if plan == self._settings.get("plan"):
                del found["plan"]
            else:
                found["order"] = order = "plan"
        if order == "plan" and plan is None:
            raise _wrong("order plan needs the plan.", "plan")
        if order in ("script", "adaptive"):
            return found
        try:
            self._control.checked(found["plan"] if order == "plan" else self._asked(found))
            if order == "plan":
                pipeline_settings(plan)
        except PipelineError as error:
            raise _wrong(error.message, "plan" if order == "plan" else "order") from error
        return found

    def apply(self, step: int, settings: Mapping[str, Any]) -> None:
        if settings == self._settings:
            return
        self._settings = settings
        order = settings["order"]
        asked = settings["plan"] if order == "plan" else self._asked(settings)
        self._control.follow_settings(asked, step)

    def report(self, status: Status) -> None:
        """Add the settings, the running order, and the last changes with their reasons."""
        shown = {
            **{name: value for name, value in self._settings.items() if name != "plan"},
            "running": name_of(self._control.order),
            "decisions": list(self._control.decisions[-_SAID:]),
        }
        status.setdefault("instruments", {})[self.name] = shown

    @staticmethod
    def _asked(settings: Mapping[str, Any]) -> Any:
        if settings["order"] == "greedy":
            return {"rule": "greedy", **{k: settings[k] for k in ("prefer", "in_flight") if k in settings}}
        return settings["order"]


def _wrong(message: str, name: str) -> ProtocolError:
    return ProtocolError("bad-parameter", message, field=f"instruments.pipeline.{name}")
