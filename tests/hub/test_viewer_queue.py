"""What a slow viewer is owed."""

import pytest
from hub_process import moments, scalars, tensors

from megalens.hub.batch_connection import ViewerQueue
from megalens.hub.live_frame import LiveFrame
from megalens.protocol import decode_frame


def live(seq, data):
    frame = decode_frame(data)
    return LiveFrame(seq, frame.stream, frame.step, frame.rows, data)


def drain(queue):
    return [item if isinstance(item, str) else item.seq for item in (queue.pop() for _ in range(len(queue)))]


SIZE = len(tensors(1))


def test_what_fits_is_kept_in_order():
    queue = ViewerQueue(10 * SIZE)
    assert all(queue.put(live(seq, tensors(seq))) for seq in range(1, 6))
    assert queue.put("message")
    assert drain(queue) == [1, 2, 3, 4, 5, "message"]
    assert queue.bytes == 0
    assert queue.dropped_rows == 0


def test_the_newest_rows_win_and_the_others_are_counted():
    queue = ViewerQueue(3 * SIZE)
    for seq in range(1, 8):
        assert queue.put(live(seq, tensors(seq)))
    assert drain(queue) == [5, 6, 7]
    assert queue.dropped_rows == 4 * 2


def test_a_frame_that_nothing_newer_covers_outlives_newer_frames():
    queue = ViewerQueue(3 * SIZE)
    queue.put(live(1, tensors(1, flag="MLP1_mat_mul")))
    for seq in range(2, 9):
        queue.put(live(seq, tensors(seq)))
    assert drain(queue) == [1, 7, 8]


def test_a_frame_is_covered_only_when_all_its_layers_are():
    queue = ViewerQueue(3 * SIZE)
    queue.put(live(1, tensors(1, layers=(1, 2))))
    for seq in range(2, 9):
        queue.put(live(seq, tensors(seq, layers=(2, 3))))
    assert drain(queue) == [1, 7, 8]


def test_when_none_is_covered_the_oldest_goes():
    queue = ViewerQueue(3 * SIZE)
    for seq in range(1, 6):
        queue.put(live(seq, tensors(seq, layers=(2 * seq, 2 * seq + 1))))
    assert drain(queue) == [3, 4, 5]


def test_scalars_and_messages_are_never_given_up():
    queue = ViewerQueue(3 * SIZE)
    queue.put(live(1, scalars(1)))
    queue.put("message")
    for seq in range(2, 20):
        queue.put(live(seq, tensors(seq)))
    kept = drain(queue)
    assert kept[:2] == [1, "message"]
    assert kept[-1] == 19


def test_scalars_that_overflow_alone_end_the_viewer():
    queue = ViewerQueue(3 * SIZE)
    results = [queue.put(live(seq, scalars(seq))) for seq in range(1, 30)]
    assert results[0]
    assert not results[-1]


def test_moments_are_given_up_last():
    size = len(moments(1))
    queue = ViewerQueue(2 * size + SIZE)
    for seq in (1, 2):
        assert queue.put(live(seq, moments(seq)))
    for seq in range(3, 9):
        assert queue.put(live(seq, tensors(seq)))
    assert queue.dropped_rows == 5 * 2
    assert queue.put("message" * (SIZE // 7))
    assert queue.put(live(9, moments(9)))
    assert queue.dropped_rows == 6 * 2 + 1
    assert [item for item in drain(queue) if isinstance(item, int)] == [2, 9]


def test_moments_beside_scalars_that_fill_the_queue_go_and_the_viewer_stays():
    queue = ViewerQueue(3 * len(scalars(1)))
    assert all(queue.put(live(seq, scalars(seq))) for seq in (1, 2, 3))
    assert queue.put(live(4, moments(4)))
    assert drain(queue) == [1, 2, 3]
    assert queue.dropped_rows == 1


def test_one_frame_larger_than_the_queue_is_taken_when_nothing_else_waits():
    queue = ViewerQueue(100)
    assert queue.put(live(1, tensors(1)))
    assert queue.put(live(2, tensors(2)))
    assert drain(queue) == [2]


@pytest.mark.slow
@pytest.mark.parametrize("frames", [2000])
def test_a_full_queue_stays_quick(frames):
    import time

    queue = ViewerQueue(200 * SIZE)
    items = [live(seq, tensors(seq)) for seq in range(1, frames + 1)]
    started = time.process_time()
    for item in items:
        queue.put(item)
    assert (time.process_time() - started) / frames < 0.002
    assert len(queue) == 200
