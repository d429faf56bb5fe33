"""The conda recipe says what ``pyproject.toml`` says: ``make conda`` builds it, and this keeps the two together."""

import json
import re
from pathlib import Path

import tomllib
import yaml

ROOT = Path(__file__).parents[2]
RECIPE = yaml.safe_load((ROOT / "packaging" / "conda" / "recipe.yaml").read_text("utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
NAMES = {pypi: name for name, pypi in RECIPE["extra"]["pypi-names"].items()}


def asked(requirements):
    """Names and bounds of PyPI's requirements, as a channel has them."""
    found = {}
    for each in requirements:
        name, bounds = re.fullmatch(r"([\w.-]+)([^;]*)(?:;.*)?", each).groups()
        found[NAMES.get(name, name)] = bounds.strip()
    return found


def named(part):
    return {(words := each.split(" ", 1))[0]: "".join(words[1:]) for each in RECIPE["requirements"][part]}


def test_the_recipe_has_the_version_and_the_licence_of_the_package():
    package = json.loads((ROOT / "package.json").read_text("utf-8"))
    assert RECIPE["context"]["version"] == package["version"]
    assert RECIPE["about"]["summary"] == package["description"]
    assert RECIPE["about"]["license"] == PROJECT["project"]["license"] == package["license"]


def test_the_recipe_asks_for_what_the_package_asks_for():
    project = PROJECT["project"]
    python = {"python": project["requires-python"]}
    assert named("run") == {**python, **asked(project["dependencies"])}
    extras = project["optional-dependencies"]
    assert named("run_constraints") == asked([*extras["tracer"], *extras["anywidget"]])


def test_the_recipe_builds_with_what_the_package_is_built_with():
    hook = PROJECT["tool"]["hatch"]["build"]["hooks"]["jupyter-builder"]["dependencies"]
    built_with = asked([*PROJECT["build-system"]["requires"], *hook])
    assert named("host") == {"python": PROJECT["project"]["requires-python"], "pip": "", **built_with}


def test_the_recipe_has_the_commands_of_the_package():
    commands = [f"{name} = {place}" for name, place in PROJECT["project"]["scripts"].items()]
    assert RECIPE["build"]["python"]["entry_points"] == commands
