"""Joining a pipeline's hub at any moment: what is recorded is whole passes of each stage, and what is dropped is said."""

from collections import defaultdict

import pytest
from peers import Peer, say, start
from pipeline import stream
from translation import plan, record, sends, small, translate

from megalens.hub.dialects.dialect import DIALECTS
from megalens.hub.dialects.step_counters import StageCounter

LAYERS, MICRO_BATCHES = 2, 4
FLAGS = ("QKV_mat_mul", "MLP1_mat_mul", "MLP2_mat_mul")


def counted(sent, counter=None):
    """The true pass of every update that is counted, by number and stage."""
    counter = counter or StageCounter(DIALECTS["3606"], FLAGS)
    found = defaultdict(list)
    for number, layer, message in sent:
        placed = counter.pass_of(layer, DIALECTS["3606"].numbers[message["update_type"]], None)
        if placed is not None:
            found[placed, max(layer, 0) // LAYERS].append((number, layer))
    return found, counter


@pytest.mark.parametrize("late", [0, 0.4, 1.2, 2.9])
@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 4), (2, 4), (3, 6), (4, 2)])
def test_whatever_moment_is_joined_passes_are_whole(stages, micro_batches, late):
    sent = stream(steps=3, stages=stages, micro_batches=micro_batches, layers=LAYERS, late=late)
    step = len(sent) // 3
    for joined in range(step + 1):
        found, counter = counted(sent[joined:])
        assert not counter.ahead or late > 1
        last = max(number for number, _ in found)
        for (number, stage), rows in found.items():
            # One pass of a stage, all of it.
            assert len({true for true, _ in rows}) == 1, (joined, number, stage)
            # The tokens alone may have come before.
            several = sum(layer >= 0 for _, layer in rows)
            assert several == LAYERS * len(FLAGS), (joined, number, stage)
        for number in range(last + 1):
            passes = {found[number, stage][0][0] for stage in range(stages) if found[number, stage]}
            # And of all stages the same, where the worker is no pass late; else it is said that they are not.
            assert len(passes) == 1 or (late > 1 and (counter.ahead or counter.behind)), (joined, number)


def test_a_stage_that_was_counted_too_far_is_set_right_by_the_end_of_the_step():
    sent = stream(steps=3, stages=2, late=1.2)
    healed = 0
    for joined in range(len(sent) // 3):
        found, counter = counted(sent[joined:])
        healed += counter.ahead > 0
        if counter.ahead:
            assert found[counter.newest, 0][0][0] == found[counter.newest, 1][0][0] == 11
    assert healed


def test_a_run_that_is_seen_from_its_beginning_loses_nothing():
    sent = stream(stages=4, micro_batches=8)
    found, _ = counted(sent)
    assert all({true for true, _ in rows} == {number} for (number, _), rows in found.items())
    assert sum(map(len, found.values())) == len(sent)


def test_layers_that_send_nothing_are_passed_over():
    """A layer of experts has no MLP1: asked for alone, nothing comes of it."""
    sent = [each for each in stream(stages=2, layers=2, numbers=(4,)) if each[1] not in (0, 2)]
    for joined in range(len(sent) // 3):
        found, _ = counted(sent[joined:])
        for rows in found.values():
            assert len({true for true, _ in rows}) == 1, joined


@pytest.mark.parametrize("joined", [7, 16, 25])
def test_a_connection_in_mid_pass_is_recorded_from_the_next_whole_pass(tmp_path, joined):
    sent = stream(steps=3)
    out = record(
        tmp_path,
        "3606",
        [start(layers=4), *(message for _, _, message in sent[joined:])],
        config=small("3606"),
    )
    found = defaultdict(list)
    for row in out.rows():
        found[row["step"], row["layer"] // 2].append(row["values"][0])
    assert found
    for values in found.values():
        assert len(values) == 6
        assert len(set(values)) == 1
    dropped = out.translator._left_out.rows
    assert dropped
    assert f"Left out: {dropped} updates of passes that had begun before the connection." in out.said
    assert out.audit("drop")[0]["warnings"] == out.said[:-1]


@pytest.mark.slow
async def test_a_lost_connection_mixes_no_passes(tmp_path):
    """Eleven of seventeen steps held two passes when the connection broke in the sixth."""
    sent = [message for _, _, message in stream(steps=17, stages=1, micro_batches=1)]
    width = len(sent) // 17
    broke, joined = 5 * width + 3, 6 * width + 3

    async def then(peer, socket):
        for message in sent[:broke] if peer.connections == 1 else sent[joined:]:
            await say(socket, message)
        if peer.connections == 2:
            peer.server.close(close_connections=False)
        await socket.close()

    async with Peer(sends([start(layers=2)], then)) as peer:
        out = await translate(tmp_path, plan(peer, "3606", wait_seconds=2))
    steps = defaultdict(list)
    for row in out.rows():
        steps[row["step"]].append(row["values"][0])
    # Fifteen whole ones, and what had come of the one that broke off.
    assert sorted(steps) == list(range(1, 17))
    assert [len(set(values)) for values in steps.values()] == [1] * 16
    assert [len(steps[step]) for step in range(1, 17)] == [6] * 5 + [2] + [6] * 10


@pytest.mark.slow
def test_the_steps_that_were_asked_for_are_there_of_every_stage(tmp_path):
    """The first stage is ahead by the micro-batches that are under way."""

    async def stay(peer, socket):
        await socket.wait_closed()

    sent = [message for _, _, message in stream(steps=2, stages=3, micro_batches=4)]
    out = record(tmp_path, "3606", [start(layers=6), *sent], stay, most_steps=2)
    for layer in range(6):
        assert out.steps("MLP2_mat_mul", layer) == [(1, 0), (2, 0)]


@pytest.mark.slow
def test_a_stage_of_which_nothing_comes_is_not_waited_for_without_end(tmp_path):
    async def stay(peer, socket):
        await socket.wait_closed()

    sent = [message for _, layer, message in stream(steps=4) if layer < 2]
    out = record(tmp_path, "3606", [start(layers=4), *sent], stay, most_steps=2)
    assert {row["step"] for row in out.rows()} == {1, 2}
    assert "Nothing came of layers 2-3." in out.said
