"""What a person gives to a run's methods: steps, layers, whole numbers of any kind, and what things were called before."""

import warnings

import numpy as np
import pytest
from moment_tree import record, write_lines
from recorded_run import values_of, write_run

import megalens
from megalens.protocol import ProtocolError, read_steps
from megalens.runs import ClientError, open_run
from megalens.runs.controls import build_patch


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return open_run(write_run(tmp_path_factory.mktemp("runs") / "run", steps=20))


@pytest.mark.parametrize(
    ("choice", "steps"),
    [
        (10, {10}),
        (np.int64(10), {10}),
        (np.array(10), {10}),
        (slice(3, 6), {3, 4, 5}),
        (slice(np.int32(18), None), {18, 19, 20}),
        (slice(None, 3), {1, 2}),
        (slice(7, 7), set()),
        (range(3, 6), {3, 4, 5}),
        (range(0, 20, 9), {9, 18}),
        ([10, 12], {10, 12}),
        ((4, 6, 9), {4, 6, 9}),
        (np.array([10, 12]), {10, 12}),
        ({2, 19}, {2, 19}),
        ("3-5,20", {3, 4, 5, 20}),
        ([], set()),
        (None, set(range(1, 21))),
    ],
)
def test_steps_are_those_that_were_named(run, choice, steps):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(run.scalars("loss", steps=choice)["step"].to_pylist()) == steps
        assert set(run.tensors("MLP1_mat_mul", steps=choice)["step"].to_pylist()) == steps
        assert set(run.table("scalars", steps=choice)["step"].to_pylist()) == steps


@pytest.mark.parametrize(
    ("pair", "steps"),
    [((10, 12), {10, 11, 12}), ((19, None), {19, 20}), ((None, 2), {1, 2}), ((5, 6), {5, 6})],
)
def test_a_pair_is_first_and_last_for_one_release_more_and_says_so(run, pair, steps):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert set(run.scalars("loss", steps=pair)["step"].to_pylist()) == steps
    assert [(each.category, each.filename) for each in said] == (
        [] if pair == (5, 6) else [(DeprecationWarning, __file__)]
    )
    assert all("slice(" in str(each.message) for each in said)


@pytest.mark.parametrize(
    "choice", [-1, [3, -1], slice(-5, None), slice(0, 9, 2), 1.5, True, [True], "x", object()]
)
def test_what_are_no_steps_is_said_with_what_are(choice):
    with pytest.raises(ProtocolError, match=r"steps=… must be a step, slice\(10, 20\), range") as caught:
        read_steps(choice)
    assert (caught.value.code, caught.value.field) == ("bad-parameter", "steps")


def test_statistics_of_a_list_of_steps_are_of_these_steps_only(grouped):
    assert set(grouped.moments("grad", by="layer", steps=[1, 3])["step"]) == {1, 3}


@pytest.fixture
def grouped(home):
    write_lines(home, "grad", 0, [record(step) for step in (1, 2, 3)])
    return open_run(home)


def test_an_argument_is_taken_by_its_old_name_with_a_warning_where_the_caller_is(run):
    for call, old, new, value in (
        (run.tensors, "layer", "layers", 1),
        (run.scalars, "name", "names", "loss"),
    ):
        with pytest.warns(DeprecationWarning, match=f"{old}=…\\) is called {new}= now") as said:
            before = call(**{old: value})
        assert said[0].filename == __file__
        assert before.num_rows == call(**{new: value}).num_rows
        with pytest.raises(TypeError, match="which are one argument"):
            call(**{old: value, new: value})


def test_an_array_is_the_tensor_with_its_shape(run):
    array = run.array("MLP1_mat_mul", layer=np.int64(2), step=np.array(7))
    assert (array.shape, array.dtype) == ((1, 24, 16), np.float32)
    assert np.array_equal(array, values_of(7, 2))
    array[0] = 0  # It is a copy.
    assert np.array_equal(run.array("MLP1_mat_mul", 2), values_of(20, 2))
    assert run.array("InputTokens", step=3).shape == (1, 24)
    assert run.array("QKV_mat_mul", part="k").shape == (1, 24, 16)


@pytest.mark.parametrize(
    ("asked", "field", "said"),
    [
        ({"flag": "MLP1"}, "flag", "This run has no flag 'MLP1'. It has MLP1_mat_mul, QKV_mat_mul"),
        ({}, "layer", "array(…) is of one layer, and MLP1_mat_mul has 0-3: give layer=…."),
        ({"layer": 9}, "layer", "This run has no MLP1_mat_mul of layer 9; it has layer 0-3."),
        ({"layer": 1, "step": 77}, "step", "This run has no MLP1_mat_mul of step 77; it has step 1-20."),
        ({"layer": "0-3"}, "layer", "layer=… must be a whole number from -1, got '0-3'."),
        ({"layer": 1, "step": [1, 2]}, "step", "step=… must be a whole number from 0, got [1, 2]."),
        ({"layer": 1, "part": "q"}, "part", "This run has no MLP1_mat_mul of part 'q'; it has part ''."),
        (
            {"layer": 1, "phase": "eval"},
            "flag",
            "This run has no rows of MLP1_mat_mul (phase eval, forward pass).",
        ),
    ],
)
def test_an_array_that_is_not_there_is_said_with_what_is(run, asked, field, said):
    with pytest.raises(ClientError) as caught:
        run.array(**{"flag": "MLP1_mat_mul", **asked})
    assert caught.value.field == field
    assert str(caught.value).startswith(said)


def test_flags_are_named_by_words_by_true_and_by_numbers_of_any_kind():
    now = {"HiddenStates": {"compressor": {"name": "NoOp", "params": {}}, "every": 5}}
    tile = {"name": "Tile", "params": {"tiles": 96, "reduction": "mean"}}
    assert build_patch(now, {"HiddenStates": True, "MLP1_mat_mul": True}, every=np.int64(2)) == {
        "HiddenStates": {**now["HiddenStates"], "every": 2},
        "MLP1_mat_mul": {"compressor": tile, "every": 2},
    }
    patch = build_patch(
        {}, {"X": megalens.Tile(np.int32(96))}, layers=np.arange(3), samples="all", phases="eval"
    )
    assert patch == {"X": {"compressor": tile, "layers": "0-2", "samples": None, "phases": ["eval"]}}
    assert build_patch(now, {"HiddenStates": {"layers": [1, 2], "every": 3}}, every=2) == {
        "HiddenStates": {**now["HiddenStates"], "layers": "1-2", "every": 3}
    }


def test_every_error_is_a_megalens_error():
    found = [getattr(megalens, name) for name in megalens.__all__ if name.endswith("Error")]
    assert len(found) == 12
    assert all(issubclass(each, megalens.MegalensError) for each in found)
