"""What a change asks for of the fast tests."""

import pytest

from scripts.check import CHECKS
from scripts.picked import CONTRACT, PAGE, PYTHON, of_rooms, picks

JEST, PYTEST = "jest, fast", "pytest, fast"


def test_a_change_of_a_slice_asks_for_its_tests_and_for_the_rules_of_the_whole_package():
    found = picks(["megalens/instruments/timeline/verdict.py"])
    assert found[JEST] == ()
    assert {"tests/instruments/timeline", "tests/test_imports.py"} <= set(found[PYTEST])
    assert "tests/hub" not in found[PYTEST]


def test_a_change_asks_for_the_tests_of_its_room_and_for_what_imports_it_or_an_importer():
    found = picks(["megalens/tracer/tensors/compressors.py"])[PYTEST]
    assert "tests/tracer" in found
    # It imports the package, which imports the file.
    assert "tests/adapters/test_experts.py" in found
    assert not [each for each in found if each.startswith(("tests/tracer/", "tests/server", "tests/hub"))]


def test_a_helper_of_tests_asks_for_the_tests_beside_it():
    assert picks(["tests/hub/conftest.py"])[PYTEST] == ("tests/hub",)
    assert picks(["tests/kit/live_run.py"])[PYTEST] == ("tests",)
    assert picks(["bench/common.py"])[PYTEST] == ("tests/demo",)


def test_a_change_of_the_page_asks_for_what_imports_it():
    found = picks(["src/store/source.ts"])
    option, *specs = found[JEST]
    assert option == "--passWithNoTests"
    assert {"src/store/", "src/views/__tests__/overview.spec.ts"} <= set(specs)
    # It imports types alone.
    assert not [each for each in specs if each.startswith("src/charts")]
    assert found[PYTEST] == ()
    assert "src/instruments/timeline/" in picks(["src/instruments/timeline/index.ts"])[JEST]


def test_tools_look_at_what_changed_in_their_language():
    def left_out(*files):
        return {name for name, what in picks([*files]).items() if what == ()} - {JEST, PYTEST}

    assert left_out("megalens/hub/server.py") == {*PAGE, *CONTRACT}
    assert left_out("src/store/source.ts") == {*PYTHON, *CONTRACT}
    assert left_out("src/protocol/messages.generated.ts", "megalens/protocol/ranges.py") == set()
    assert {*PYTHON, *PAGE, *CONTRACT} <= {check.name for check in CHECKS if check.fast}


@pytest.mark.parametrize(
    "files", [None, [], ["pyproject.toml"], ["protocol/streams.json", "src/store/source.ts"]]
)
def test_with_nothing_to_compare_and_where_everything_may_differ_everything_runs(files):
    assert picks(files) is None


def test_prose_asks_for_nothing():
    assert set(picks(["docs/monitor.md"]).values()) == {()}


def test_a_slice_is_run_on_both_sides_and_what_is_none_is_named():
    assert of_rooms(["timeline"]) == {
        "jest": ("src/instruments/timeline",),
        "pytest": ("tests/instruments/timeline",),
    }
    with pytest.raises(SystemExit, match=r"no tests of 'nosuch'. Rooms and slices are: adapters, .*timeline"):
        of_rooms(["nosuch"])
