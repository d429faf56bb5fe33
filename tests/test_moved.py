"""Import paths that the documentation of the last version named go on working, with a warning that says where the module is now."""

import importlib
import re
import sys
import warnings

import pytest

import megalens
from megalens import _moved

OLD = sorted(_moved._MOVED)


def fresh(name, monkeypatch):
    """Import a module as a process does that has not imported it by this name."""
    for known in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
        monkeypatch.delitem(sys.modules, known)
    return importlib.import_module(name)


@pytest.mark.parametrize("old", OLD)
def test_an_old_path_gives_the_very_module_with_a_warning(old, monkeypatch):
    new = f"megalens.{_moved._MOVED[old]}"
    with pytest.warns(DeprecationWarning, match=re.escape(f"megalens.{old} is now {new}.")):
        module = fresh(f"megalens.{old}", monkeypatch)
    assert module is importlib.import_module(new)
    # What a moved module says of itself is where it is, so that pickles and reloads find it.
    assert module.__name__ == module.__spec__.name == new


@pytest.mark.parametrize("name", ["pipeline", "split"])
def test_public_names_of_modules_stay_without_a_warning(name, monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module = fresh(f"megalens.{name}", monkeypatch)
    assert module is getattr(megalens, name)
    assert module.plan is importlib.import_module(f"megalens.{_moved._PUBLIC[name]}").plan


def test_modules_below_an_old_path_follow_it(monkeypatch):
    with pytest.warns(DeprecationWarning, match="megalens.client.errors is now megalens.runs.errors"):
        module = fresh("megalens.client.errors", monkeypatch)
    assert module is importlib.import_module("megalens.runs.errors")


def test_the_warning_is_of_the_line_that_imports_so_that_python_shows_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "megalens.trainer_callback", raising=False)
    with pytest.warns(DeprecationWarning, match="is now megalens.api.callback") as warned:
        from megalens.trainer_callback import MegalensCallback
    assert [each.filename for each in warned] == [__file__]
    assert MegalensCallback is megalens.adapters.MegalensCallback


@pytest.mark.parametrize("name", ["megalens.clients", "megalens.client.no_such_file", "megalens.pipeline.no"])
def test_a_path_that_never_was_is_not_found(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with pytest.raises(ModuleNotFoundError, match=re.escape(name)):
            importlib.import_module(name)


def test_following_moves_twice_changes_nothing():
    before = list(sys.meta_path)
    _moved.follow_moves()
    assert sys.meta_path == before
