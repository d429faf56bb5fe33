"""The direction from all other tokens of a text to a group of them, computed from a lab's own rows."""

import numpy as np
import pytest
from writers import demo

import megalens
from megalens import ClientError
from megalens.demo.model import ByteTokenizer
from megalens.tracer.vectors import load_vectors

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("runtime_folder")]
EXACT = {"HiddenStates": {"compressor": megalens.NoOp()}}


@pytest.fixture(scope="module")
def lab(runtime_folder):
    with megalens.serve(demo(sequence=64), ByteTokenizer(), flags=EXACT, linger=0.2) as lab:
        lab.generate(["the cat", "a dog sat"], 4, temperature=0)
        lab.generate("one more text", 4, temperature=0)
        yield lab


def vectors_of(lab, generation, sequence, layer=1):
    return lab.generation(generation).array("HiddenStates", layer, sequence)


def test_it_is_the_mean_of_the_group_less_the_mean_of_all_others(lab) -> None:
    group = [(0, 4), (0, 5), (1, 2)]
    rows = {(s, p): v for s in (0, 1) for p, v in enumerate(vectors_of(lab, 1, s)) if np.isfinite(v).all()}
    inside = np.mean([rows[place] for place in group], axis=0)
    outside = np.mean([row for place, row in rows.items() if place not in group], axis=0)
    direction = lab.direction("HiddenStates", layer=1, generation=1, tokens=group)
    assert direction.dtype == np.float32
    np.testing.assert_allclose(direction, inside - outside, atol=1e-6)


def test_it_goes_over_several_generations_and_is_read_by_who_adds_it(lab, tmp_path) -> None:
    direction = lab.direction("HiddenStates", 0, [1, 2], [(1, 0, 1), (2, 0, 3)])
    rows = [(g, s, p) for g, s in ((1, 0), (1, 1), (2, 0)) for p in range(len(vectors_of(lab, g, s, 0)))]
    vectors = {place: vectors_of(lab, *place[:2], 0)[place[2]] for place in rows}
    finite = {place: row for place, row in vectors.items() if np.isfinite(row).all()}
    inside = [finite.pop((1, 0, 1)), finite.pop((2, 0, 3))]
    np.testing.assert_allclose(
        direction, np.mean(inside, axis=0) - np.mean(list(finite.values()), axis=0), atol=1e-6
    )
    megalens.save_direction(tmp_path / "d.safetensors", direction)
    read = load_vectors("d.safetensors", [tmp_path], layers=2, features=[len(direction)], unit=False)
    np.testing.assert_array_equal(read[1, 0].numpy(), direction)


def test_each_feature_of_a_tile_has_the_mean_of_its_tile(lab) -> None:
    exact = lab.direction("HiddenStates", 1, 1, [(0, 4)])
    lab.configure(HiddenStates=megalens.Tile(5))
    text = lab.generate(["the cat", "a dog sat"], 4, temperature=0)
    direction = lab.direction("HiddenStates", 1, text.number, [(0, 4)])
    width = -(-len(exact) // 5)
    means = [exact[at : at + width].mean() for at in range(0, len(exact), width)]
    np.testing.assert_allclose(direction, np.repeat(means, width)[: len(exact)], atol=1e-5)
    lab.configure(HiddenStates=megalens.Tile(5, "max"))
    text = lab.generate("the cat", 2)
    with pytest.raises(ClientError, match="keeps no features of it"):
        lab.direction("HiddenStates", 1, text.number, [(0, 4)])
    lab.configure(HiddenStates=megalens.NoOp())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"tokens": [(0, 99)]}, "Generation 1 has no position 99 in sequence 0"),
        ({"tokens": [(7, 0)]}, "Generation 1 has no position 0 in sequence 7"),
        ({"tokens": [4]}, "tokens=… must be pairs (sequence, position), got 4"),
        ({"tokens": [(1, 0, 4, 4)]}, "tokens=… must be pairs (sequence, position)"),
        ({"tokens": [(0, -1)]}, "tokens=… must be a whole number from 0, got -1"),
        ({"tokens": [(0, 4)], "generation": [1, 2]}, "triples (generation, sequence, position)"),
        ({"tokens": []}, "There are no tokens of the group"),
        ({"tokens": [(0, 4)], "generation": 9}, "has no generation 9"),
        ({"tokens": [(0, 4)], "flag": "Nothing"}, "Nothing"),
    ],
)
def test_what_cannot_be_is_refused_in_the_words_of_the_call(lab, arguments, says) -> None:
    asked = {"flag": "HiddenStates", "layer": 1, "generation": 1, **arguments}
    with pytest.raises(ClientError) as caught:
        lab.direction(**asked)
    assert says in str(caught.value)
