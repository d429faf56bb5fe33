"""What a context-parallel job says of its rows, which nobody could tell by looking at them."""

import pytest

from megalens import Tile
from megalens.tracer import Place

PARTS = Place(world_size=2, dp_size=2, cp_size=2)
FLAGS = {"MLP1_mat_mul": Tile(4)}


def words_of(tracer) -> str:
    return " ".join(tracer.status()["warnings"])


def test_rank_0_says_that_sequences_are_cut_and_not_joined(gpt, traced, small_hub) -> None:
    tracer = traced(gpt, flags=FLAGS, place=PARTS)
    assert "cut over 2 context-parallel ranks" in words_of(tracer)
    assert "not joined" in words_of(tracer)
    assert small_hub.next("announce")["layout"]["cp"] == 2


def test_it_is_said_once_tensors_are_traced_and_once_only(gpt, ids, traced, small_hub) -> None:
    tracer = traced(gpt, flags={}, place=PARTS)
    with tracer.step():
        gpt(ids)
    assert words_of(tracer) == ""
    for count in (2, 4):
        tracer.configure({"MLP1_mat_mul": Tile(count)})
        with tracer.step():
            gpt(ids)
    assert words_of(tracer).count("context-parallel") == 1


@pytest.mark.parametrize(
    "place",
    [
        Place(world_size=2, dp_size=2),
        Place(rank=1, dp=1, tp_ranks=(1,), world_size=2, dp_size=2, cp_size=2),
    ],
    ids=["data parallel", "another rank than the first"],
)
def test_nobody_else_says_it(gpt, traced, place) -> None:
    assert words_of(traced(gpt, flags=FLAGS, place=place)) == ""
