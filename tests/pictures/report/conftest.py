"""Views read and drawn by the engine, with their recipes."""

import pytest
from engine_bundles import built
from runs_fixtures import *  # noqa: F403

from megalens.pictures.engine import Engine
from megalens.protocol import check_view_options
from megalens.runs import ClientError
from megalens.runs.answers import RunAnswers


class Picture:
    """A picture with the members of its recipe."""

    def __init__(self, still):
        self.title, self.caption, self.summary = still["title"], still["caption"], still["summary"]
        recipe = still["recipe"] or {}
        self.empty = not recipe
        self.template, self.texts = recipe.get("template"), recipe.get("texts", {})
        self.params, self.datasets = recipe.get("params", {}), recipe.get("datasets", {})


@pytest.fixture(scope="session")
def draw(tmp_path_factory):
    """Returns the pictures of a view; ``answers`` answers for the runs that it compares with, and for its own."""
    engine = Engine(built(tmp_path_factory.mktemp("engine"), "recipes-job"))

    def pictures(run, answers=None, **options):
        def asked(method, body):
            found = (answers or {run.id: RunAnswers(run)}.get)(body["run"])
            if found is None:
                raise ClientError("There is no such run.", code="not-found")
            return found.answer(method, body)

        args = {"run": run.id, "options": check_view_options(options)}
        found, _ = engine.run("recipes", args, asked)
        return [Picture(still) for still in found["stills"]]

    yield pictures
    engine.close()
