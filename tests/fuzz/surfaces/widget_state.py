"""What a saved notebook or a page says to the kernel's widgets: their state, and arguments as a person types them."""

from random import Random
from typing import Any

from traitlets import TraitError

from megalens.pictures.widgets.base import WidgetError
from megalens.pictures.widgets.generated import VIEW_CLASSES
from megalens.protocol import option_schema, view_fields
from tests.fuzz.mutate import hostile_text, hostile_value, mutated_tree
from tests.fuzz.surface import Surface
from tests.fuzz.surfaces.view_options import made_options

_RUN = {"id": "20261120-101500-gpt-demo", "name": "gpt-demo", "folder": "megalens-runs/x"}


def _mutate(chance: Random, _: Any) -> Any:
    options = made_options(chance)
    state: Any = {"options": mutated_tree(chance, options)}
    if chance.random() < 0.5:
        names = [*view_fields(options["view"]), "run", "picture", hostile_text(chance)]
        state = {name: hostile_value(chance) for name in chance.sample(names, 2)}
    return [options["view"], state, mutated_tree(chance, {**_RUN, "options": options})]


def _run(given: Any) -> bool:
    view, state, made = given
    usual = {"flag": "MLP1_mat_mul"} if "flag" in view_fields(view) else {}
    widget = VIEW_CLASSES[view](_RUN, usual)
    before = dict(widget.options)
    try:
        # What comes of the browser: a refusal is logged by ipywidgets, and the message dropped.
        widget.set_state(state)
        if isinstance(made, dict) and isinstance(made.get("options"), dict):
            options = {name: value for name, value in made["options"].items() if name != "view"}
            VIEW_CLASSES[view](_RUN, options)
        return True
    finally:
        assert set(widget.options) == set(before)
        for name in view_fields(view):
            assert option_schema(view, name) is not None
        repr(widget).encode("utf-8")
        widget.close()


SURFACE = Surface(lambda: [None], _mutate, _run, (TraitError, WidgetError))
