"""What the hub counts of a stream."""

import pyarrow as pa
from hub_process import tensors

from megalens.hub.figures import StreamFigures
from megalens.hub.live_frame import admit_frame
from megalens.protocol import FrameChecker, decode_frame, encode_frame


def of(*steps: int) -> bytes:
    """One frame with the rows of several steps."""
    tables = [decode_frame(tensors(step)).table() for step in steps]
    return encode_frame("tensors", pa.concat_tables(tables).combine_chunks(), step=max(steps))


def test_a_frame_of_several_steps_counts_for_each_of_them() -> None:
    figures, checker = StreamFigures(), FrameChecker()
    sizes = 0
    for seq, data in enumerate((of(3, 4, 5), of(6), of(7, 8)), 1):
        frame, body = admit_frame(checker, decode_frame(data), data, seq)
        sizes += len(data)
        figures.add(frame, body)
    told = figures.status()
    assert (told["first_step"], told["last_step"]) == (3, 8)
    assert figures.bytes_per_step() < sizes / 4
