"""The common part of view widgets: the run, the options, and their forms in a notebook file."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ipywidgets import DOMWidget, register
from traitlets import Dict, TraitError, TraitType, Unicode, observe, validate

from ...protocol import (
    LAST_STEP,
    MegalensError,
    ProtocolError,
    check_view_options,
    is_whole,
    join_numbers,
    must_be,
    option_name,
    option_schema,
    python_name,
    ranges_text,
    read_steps,
    view_defaults,
    view_fields,
)
from ...protocol.version import own_version
from .comm import CommRows, class_for, front_end, lacking_words

if TYPE_CHECKING:
    from pandas import DataFrame

    from ...runs import Run

# npm range of the browser side: compatible versions, any for a checkout that was never installed.
_MODULE_RANGE = "*" if own_version() == "0" else f"^{own_version()}"

_WIDGET_MIME = "application/vnd.jupyter.widget-view+json"
VIEW_MIME = "application/vnd.megalens.view+json"

Painter = Callable[[Mapping[str, Any]], tuple[str, str]]


class WidgetError(MegalensError, ValueError):
    """An argument of a view is not what the view takes.

    Parameters
    ----------
    message : str
        What was expected, what came, what to try.
    field : str
        The argument at fault.
    """

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


"""Takes checked options and returns an SVG text and a caption of one line."""


# View options as attributes of a widget.
class Option(TraitType[Any, Any]):
    """A view option as a trait: setting it checks the view's schema and changes the view's ``options``."""

    default_value: Any = None
    allow_none = True

    def class_init(self, cls: type[Any], name: str | None) -> None:
        """Take the help from the schema of the view to which the option belongs."""
        super().class_init(cls, name)
        self.help = option_schema(cls.view_name, option_name(name or "")).get("description", "")

    def validate(self, obj: View, value: Any) -> Any:
        """Return the value as ``options`` will have it, or raise :class:`WidgetError`."""
        assert self.name is not None
        name = option_name(self.name)
        plain = value if obj._spreading else obj.checked({self.name: value})[name]
        return python_value(option_schema(obj.view_name, name), plain)


def plain_option(schema: Mapping[str, Any], value: Any) -> Any:
    """Return a person's value of an option in the form of its schema.

    The schema's ``x-input`` allows further forms: ``ranges`` a number or numbers (``3``, ``range(4)``),
    ``steps`` a step, range or slice, ``words`` one text, ``runs`` runs; numpy's numbers wherever numbers are;
    the members of a filter each in their own way. Other values are returned unchanged, for the schema to
    refuse.
    """
    form = schema.get("x-input")
    if form == "steps":
        return _plain_steps(value)
    if not isinstance(value, type) and hasattr(value, "tolist"):
        value = value.tolist()
    if form == "ranges":
        return _plain_range(value)
    if isinstance(value, str):
        return [value] if form in ("words", "runs") else value
    if isinstance(value, Mapping):
        members = schema.get("properties", {})
        return {name: plain_option(members.get(name, {}), each) for name, each in value.items()}
    if form == "runs" and value is not None:
        several = value if isinstance(value, list | tuple | set) else [value]
        return [getattr(each, "id", each) for each in several]
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        return value
    return [each.tolist() if hasattr(each, "tolist") else each for each in value]


def python_value(schema: Mapping[str, Any], value: Any) -> Any:
    """Return an option's value as Python has it: steps as a range or an open slice, to be used in a call."""
    if schema.get("x-input") != "steps" or not isinstance(value, list):
        return value
    # JSON Schema takes 6.0 for an integer.
    first, last = map(int, value)
    return range(first, last + 1) if last < LAST_STEP else slice(first, None)


def _plain_steps(value: Any) -> list[int] | None:
    # Code that views wrote had both ends in a list, so that a list of two is still read so.
    ranges = read_steps(value, pairs=(tuple, list))
    if ranges is None:
        return None
    if len(ranges) != 1:
        expected = "steps without a gap, such as range(10, 20)"
        raise must_be("steps=…", expected, value, "steps")
    return list(ranges[0])


def _plain_range(value: Any) -> Any:
    if is_whole(value):
        return str(int(value))
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        return value
    try:
        # Nothing stays nothing, which the schema refuses.
        return ranges_text(join_numbers(value)) or []
    except (TypeError, ValueError, AttributeError):
        return list(value)


Framer = Callable[[Mapping[str, Any]], "DataFrame"]
"""Takes checked options and returns the rows that the view draws."""


@register
class View(DOMWidget):  # type: ignore[misc]  # ipywidgets has no types
    """A view of one run in a cell.

    The cell's output has the run's name and the options, so that the browser draws the view by itself while
    the kernel is busy, dead or restarted, and a static picture for programs that do not know Megalens.

    Parameters
    ----------
    run : mapping
        ``id``, ``name`` and ``folder`` (relative to the notebook, or None), and ``kind`` where it is
        ``"statistics"``. No token and no absolute path.
    options : mapping
        Options of the view, without ``view``.
    painter : callable, optional
        Draws the static picture from checked options.
    framer : callable, optional
        Reads the rows that the view draws, for views that offer them as a table.
    rows : Run, optional
        Where a page without the labextension has its rows from.

    Raises
    ------
    WidgetError
        When an option violates ``protocol/views.schema.json``; ``field`` names the argument.
    """

    view_name: ClassVar[str] = ""

    _model_name = Unicode("MegalensViewModel").tag(sync=True)
    _model_module = Unicode("megalens").tag(sync=True)
    _model_module_version = Unicode(_MODULE_RANGE).tag(sync=True)
    _view_name = Unicode("MegalensView").tag(sync=True)
    _view_module = Unicode("megalens").tag(sync=True)
    _view_module_version = Unicode(_MODULE_RANGE).tag(sync=True)

    run = Dict(help="Which run: id, name, and folder or None.").tag(sync=True)
    options = Dict(help="All options of the view, as in protocol/views.schema.json.").tag(sync=True)
    picture = Unicode(
        help="The last static picture, as SVG text; drawn when the cell displays.", read_only=True
    )

    def __new__(cls, *args: Any, **kwargs: Any) -> View:
        made: View = super().__new__(class_for(cls))
        return made

    def __init__(
        self,
        run: Mapping[str, Any],
        options: Mapping[str, Any],
        painter: Painter | None = None,
        framer: Framer | None = None,
        rows: Run | None = None,
    ) -> None:
        self._painter = painter
        self._framer = framer
        self._spreading = False
        self._rows: CommRows | None = None
        checked = self.checked(options)
        named = {key: run.get(key) for key in ("id", "name", "folder")}
        super().__init__(run=named | ({"kind": run["kind"]} if "kind" in run else {}), options=checked)
        if self._model_module == "anywidget":
            self._rows = CommRows(self, rows)
        names = [name for name, trait in self.traits().items() if isinstance(trait, Option)]
        if names:  # Of no names it would observe all traits.
            self.observe(self._option_changed, names)

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options of the arguments of a run's method."""
        return options

    def checked(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options with some changed, all checked; raises ``WidgetError`` naming one."""
        named = {option_name(name): value for name, value in changes.items()}
        try:
            plain = {
                name: plain_option(option_schema(self.view_name, name), value)
                for name, value in named.items()
            }
            return check_view_options({**self._current(), **plain, "view": self.view_name})
        except ProtocolError as error:
            raise WidgetError(error.message, error.field or "options") from error

    def draw(self) -> str:
        """Draw the static picture of the current options into ``picture``, and return its caption."""
        if self._painter is None:
            return ""
        svg, caption = self._painter(self.options)
        self.set_trait("picture", svg)
        return caption

    def close(self) -> None:
        """End the view and what its pages asked for. Safe twice."""
        rows: CommRows | None = getattr(self, "_rows", None)
        if rows is not None:
            rows.close()
        super().close()

    def _current(self) -> dict[str, Any]:
        # Before the base class's setup there are no options, and reading a trait would set its default.
        return dict(self._trait_values.get("options") or {})

    @validate("options")
    def _check_options(self, proposal: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return check_view_options({**proposal["value"], "view": self.view_name})
        except ProtocolError as error:
            # The browser's changes come here, too: a TraitError is logged and the message dropped.
            raise TraitError(error.message) from error

    @observe("options")
    def _spread_options(self, change: Mapping[str, Any]) -> None:
        if self._spreading:
            return
        self._spreading = True
        try:
            with self.hold_trait_notifications():
                for name in view_fields(self.view_name):
                    self.set_trait(python_name(name), change["new"][name])
        finally:
            self._spreading = False

    def _option_changed(self, change: Mapping[str, Any]) -> None:
        if not self._spreading and self.options:
            self.options = self.checked({change["name"]: change["new"]})

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        # Without the type of ipywidgets: JupyterLab draws ours, and programs without Megalens show the
        # picture. A converter of an executed notebook would take ipywidgets' first and show an empty box.
        bundle: dict[str, Any] = {}
        if self._rows is not None:
            bundle[_WIDGET_MIME] = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        # marimo keeps nothing of a still picture, and would wait for it.
        caption = "" if front_end() == "marimo" else self.draw()
        bundle[VIEW_MIME] = {
            "format": 1,
            "run": dict(self.run),
            "options": dict(self.options),
            "model_id": self.model_id,
        }
        bundle["text/plain"] = repr(self)
        if caption:
            words = html.escape(f"{caption} {lacking_words()}".strip())
            bundle["text/html"] = (
                f'<figure class="jp-MegalensPicture" style="margin:0">{self.picture}'
                f"<figcaption>{words}</figcaption></figure>"
            )
        return bundle

    def __repr__(self) -> str:
        usual = view_defaults(self.view_name)
        given = {name: self.options[name] for name in view_fields(self.view_name)}
        shown = ", ".join(
            f"{python_name(k)}={python_value(option_schema(self.view_name, k), v)!r}"
            for k, v in given.items()
            if k not in usual or v != usual[k]
        )
        return f"{type(self).__name__}({self.run.get('name') or self.run.get('id')}: {shown})"


# Views that other packages bring: known to the browser, and to Python by name only.
@register
class OtherView(View):
    """A view that a JupyterLab extension registered, and that JupyterLab alone can draw.

    Its options are checked in the browser, by the schema that it was registered with; there is no static
    picture of it. ``options`` have ``view``, its name. Raises ``WidgetError`` when an option is not JSON;
    ``field`` names it.
    """

    def checked(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options with some changed, checked to be JSON."""
        return _plain({**self._current(), **changes})

    @validate("options")
    def _check_options(self, proposal: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return _plain(proposal["value"])
        except WidgetError as error:
            raise TraitError(error.message) from error

    def __getattr__(self, name: str) -> Any:
        options = self._trait_values.get("options") if not name.startswith("_") else None
        if options and name in options:
            return options[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _spread_options(self, change: Mapping[str, Any]) -> None:
        """Do nothing: options of an unknown view are no traits."""

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{type(self).__name__}({self.run.get('name') or self.run.get('id')}: {given})"


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in options.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise WidgetError(f"{name} must be what JSON can hold, got {value!r:.100}.", name) from error
    return dict(options)
