"""Whatever a peer sends is either read to its dialect or left out under a reason: nothing else ever comes of it."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megalens.hub.dialects.dialect import DIALECTS
from megalens.hub.dialects.peer_message import (
    PADDING,
    BadMessage,
    read_candidates,
    read_message,
    read_prompts,
    read_update,
)
from megalens.hub.dialects.step_counters import PassCounter

SMALL = st.integers(-3, 9)
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.lists(SMALL, max_size=3),
    st.dictionaries(st.text(max_size=3), SMALL, max_size=2),
)
NUMBER = st.one_of(st.floats(), st.integers(-5, 5))
TOKEN = st.fixed_dictionaries(
    {"token": st.text(max_size=3), "id": st.one_of(st.integers(-2, 9), NUMBER)},
    optional={"logit": NUMBER, "probability": NUMBER},
)
UPDATES = st.fixed_dictionaries(
    {"type": st.just("update"), "update_type": st.one_of(SMALL, ODD)},
    optional={
        "layer_id": st.one_of(SMALL, ODD),
        "args": st.one_of(st.lists(st.integers(0, 3), max_size=4), ODD),
        "result": st.one_of(st.lists(NUMBER, max_size=24), st.lists(TOKEN, max_size=4), ODD),
        "sampled": st.one_of(st.lists(TOKEN, max_size=2), ODD),
    },
)
PIXELS = {"QKV_mat_mul": 3, "MLP1_mat_mul": 2}


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.sampled_from(list(DIALECTS.values())), st.lists(UPDATES, max_size=6))
def test_updates(dialect, messages):
    counter = PassCounter(dialect)
    before = -1
    for message in messages:
        # Over the wire and back, with the peers' bare words.
        message = read_message(json.dumps(message))
        try:
            rows = read_update(dialect, message, PIXELS)
        except BadMessage:
            continue
        assert {row.flag for row in rows} <= set(dialect.flags)
        for row in rows:
            assert row.values.dtype == np.float32
            assert row.labels == [] or len(row.labels) == row.values.size
        number = counter.pass_of(rows[0].layer, rows[0].flag, rows[0].values)
        assert number is None or 0 <= number <= counter.newest <= before + 1
        before = counter.newest


@pytest.mark.parametrize(
    "more", [{"args": [1] * 9}, {"args": [4000, 4000]}, {"layer_id": 10_001}, {"result": range(12_000_001)}]
)
def test_an_update_is_bounded(more):
    usual = {"type": "update", "update_type": 4, "layer_id": 1, "args": [2, 3, 2], "result": [0.5] * 12}
    assert len(read_update(DIALECTS["3606"], usual, PIXELS)) == 1
    # Of the values their number is looked at, and none of them.
    more = {name: Many(value) if isinstance(value, range) else value for name, value in more.items()}
    with pytest.raises(BadMessage, match=r"at most 8 sizes|layer_id|more than 12000000 values"):
        read_update(DIALECTS["3606"], {**usual, **more}, PIXELS)


class Many(list):
    def __init__(self, values):
        super().__init__()
        self._values = values

    def __len__(self):
        return len(self._values)


@pytest.mark.slow
@given(st.one_of(st.binary(max_size=40), st.text(max_size=40)))
def test_messages(data):
    try:
        message = read_message(data)
    except BadMessage:
        return
    assert isinstance(message["type"], str)


@pytest.mark.slow
@given(st.one_of(st.lists(TOKEN, max_size=6), st.lists(ODD, max_size=3), ODD), st.integers(1, 3))
def test_prompts(prompts, sequences):
    try:
        rows = read_prompts(prompts, sequences)
    except BadMessage:
        return
    assert len(rows) == sequences
    assert all(token.id >= PADDING for row in rows for token in row)


@pytest.mark.slow
@given(UPDATES, st.integers(1, 3))
def test_candidates(message, sequences):
    try:
        candidates, sampled = read_candidates(read_message(json.dumps(message)), sequences)
    except BadMessage:
        return
    assert len(candidates) == len(sampled) == sequences
    assert all(each for each in candidates)
