"""Catch-up: for every place where a viewer may have stopped, exactly what it lacks, or how much of it is gone."""

import pyarrow as pa
import pytest
from hub_process import moments, scalars, tensors
from hypothesis import given, settings
from hypothesis import strategies as st

from megalens.hub.history import StreamHistory
from megalens.hub.live_frame import LiveFrame
from megalens.protocol import (
    BIT_CAUGHT_UP,
    BIT_MERGED,
    decode_frame,
    encode_frame,
    restamp_frame,
    stream_schema,
)


def audit(step):
    row = {"step": step, "time": 1.0, "who": "x", "action": "connect", "detail": "{}"}
    return encode_frame("audit", pa.Table.from_pylist([row], stream_schema("audit")), step=step)


MAKERS = {"t": tensors, "m": moments, "s": scalars, "a": audit}
SIZE, MOMENTS_SIZE = len(tensors(1)), len(moments(1))


def fill(history, kinds):
    """Append one frame per letter; the step is the sequence number, so that rows tell where they came from."""
    for seq, kind in enumerate(kinds, 1):
        data = restamp_frame(MAKERS[kind](seq), seq=seq)
        frame = decode_frame(data)
        history.append(LiveFrame(seq, frame.stream, frame.step, frame.rows, data))


def sent(backlog):
    """Return (seq, stream, original sequence numbers of the rows) of every frame."""
    frames = [decode_frame(data) for data in backlog.frames()]
    assert all(frame.bits & BIT_CAUGHT_UP for frame in frames)
    return [(f.seq, f.stream, sorted(set(f.table().column("step").to_pylist()))) for f in frames]


@pytest.mark.parametrize("since", [None, 0, 3, 9])
def test_scalars_come_whole_and_merged(since):
    history = StreamHistory(10 * SIZE)
    fill(history, "ssssssssss")
    got = sent(history.backlog(since))
    assert got == [(10, "scalars", list(range((since or 0) + 1, 11)))]


def test_a_viewer_that_has_everything_is_sent_nothing():
    history = StreamHistory(10 * SIZE)
    fill(history, "stats")
    assert sent(history.backlog(5)) == []


def test_merged_frames_are_marked():
    history = StreamHistory(10 * SIZE)
    fill(history, "sssa")
    bits = [decode_frame(data).bits for data in history.backlog(None).frames()]
    assert bits == [BIT_CAUGHT_UP | BIT_MERGED, BIT_CAUGHT_UP]


def test_tensors_past_the_bound_are_gone_and_counted():
    history = StreamHistory(3 * SIZE)
    fill(history, "tttttttt")
    backlog = history.backlog(2)
    assert [seq for seq, _, _ in sent(backlog)] == [6, 7, 8]
    assert (backlog.missed_frames, backlog.missed_rows) == (3, 6)
    assert (backlog.first_step, backlog.last_step) == (3, 5)


def test_a_smaller_backlog_is_the_newest_part_and_the_rest_is_counted():
    history = StreamHistory(10 * SIZE)
    fill(history, "tststst")
    backlog = history.backlog(None, 2 * SIZE)
    assert [seq for seq, stream, _ in sent(backlog) if stream == "tensors"] == [5, 7]
    assert [row for _, stream, rows in sent(backlog) if stream == "scalars" for row in rows] == [2, 4, 6]
    assert backlog.missed_frames == 2
    assert sent(history.backlog(None, 0)) == [(2, "scalars", [2]), (4, "scalars", [4]), (6, "scalars", [6])]


def test_a_frame_larger_than_the_bound_is_kept_while_it_is_the_newest():
    history = StreamHistory(10)
    fill(history, "tt")
    assert [seq for seq, _, _ in sent(history.backlog(None))] == [2]


@settings(deadline=None, max_examples=60)
@given(st.text("tsam", max_size=40), st.integers(1, 6), st.integers(0, 40), st.integers(0, 40))
def test_a_connection_that_breaks_anywhere_in_catch_up_loses_and_repeats_nothing(
    kinds, bound, since, breaks_after
):
    history = StreamHistory(bound * SIZE)
    fill(history, kinds)
    kept = [(stream, row) for _, stream, rows in sent(history.backlog(None)) for row in rows]
    for stream, size in (("tensors", SIZE), ("moments", MOMENTS_SIZE)):
        assert max(1, bound * SIZE // size) >= sum(name == stream for name, _ in kept)
    since = min(since, len(kinds))
    first = sent(history.backlog(since))[:breaks_after]
    came = [(stream, row) for _, stream, rows in first for row in rows]
    last = first[-1][0] if first else since
    backlog = history.backlog(last)
    came += [(stream, row) for _, stream, rows in sent(backlog) for row in rows]
    assert came == sorted(came, key=lambda pair: pair[1])
    assert len(came) == len(set(came))
    names = {"t": "tensors", "m": "moments", "s": "scalars", "a": "audit"}
    owed = [(names[kind], seq) for seq, kind in enumerate(kinds, 1) if seq > since]
    lost = [pair for pair in owed if pair not in came]
    assert {stream for stream, _ in lost} <= {"tensors", "moments"}
    assert len(lost) == history.backlog(since).missed_frames


def test_many_frames_are_merged_into_few():
    history = StreamHistory(2 * SIZE)
    fill(history, "st" * 1500)
    frames = sent(history.backlog(None))
    assert sum(len(rows) for _, stream, rows in frames if stream == "scalars") == 1500
    assert len(frames) < 12


def test_moments_have_a_bound_of_their_own():
    history = StreamHistory(3 * MOMENTS_SIZE)
    fill(history, "tm" * 3 + "t" * 40)
    frames = sent(history.backlog(None))
    assert [seq for seq, stream, _ in frames if stream == "moments"] == [2, 4, 6]
    assert history.backlog(None).missed_frames == sum(kind == "t" for kind in "tm" * 3 + "t" * 40) - sum(
        stream == "tensors" for _, stream, _ in frames
    )
    fill_more = moments(50)
    history.append(LiveFrame(50, "moments", 50, 1, restamp_frame(fill_more, seq=50)))
    assert [seq for seq, stream, _ in sent(history.backlog(None)) if stream == "moments"] == [4, 6, 50]
    assert [seq for seq, stream, _ in sent(history.backlog(None, MOMENTS_SIZE)) if stream == "moments"] == [
        50
    ]


def test_scalars_between_rare_moments_are_merged():
    history = StreamHistory(10 * MOMENTS_SIZE)
    fill(history, ("m" + "s" * 700) * 3)
    frames = sent(history.backlog(None))
    assert sum(len(rows) for _, stream, rows in frames if stream == "scalars") == 2100
    assert len([stream for _, stream, _ in frames if stream == "scalars"]) < 200 + 6
    assert sent(history.backlog(350))[0][2][0] == 351
