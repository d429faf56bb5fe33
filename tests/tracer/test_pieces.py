"""Pieces of tensors that are compressed by rank and joined are what one process would have had."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from megalens.protocol import Empty, Histogram, NoOp, Peaks, Projection, Tile
from megalens.tracer.tensors.batch import Batch, Row, RowMeta, tensors_table
from megalens.tracer.tensors.compression_error import CompressionError
from megalens.tracer.tensors.compressors import Stage, StagePool, make_kernel
from megalens.tracer.tensors.joiner import Joiner, pack_pieces
from megalens.tracer.tensors.pieces import cut_of, join_pieces
from megalens.tracer.tensors.probes import errors_of, moments_of
from megalens.tracer.tensors.sender import LeaderSender

COMPRESSORS = [
    Tile(4),
    Tile(96),
    Tile(5, "max"),
    Tile(3, "data.std(dim=-1)"),
    NoOp(),
    Empty(),
    Projection("vectors"),
    Histogram(16),
    Histogram(16, tiles=3),
]


def kept(compressor, whole, shards, ranks, axis):
    """Return what each rank keeps, what is made of it, and what one process would keep."""
    features = whole.shape[-1]
    vectors = torch.nn.functional.normalize(torch.randn(3, 2, features), dim=-1)
    kernel = make_kernel(compressor, vectors)
    pieces = whole.chunk(ranks, axis)
    cuts = [
        cut_of(shards, piece.shape, features, compressor, kernel, vectors, tp, ranks)
        for tp, piece in enumerate(pieces)
    ]
    arrays = [cut.kernel(piece, 2).numpy() for cut, piece in zip(cuts, pieces, strict=True)]
    assert all(cut.full_shape(piece.shape) == whole.shape for cut, piece in zip(cuts, pieces, strict=True))
    return arrays, cuts[0], kernel(whole, 2).numpy()


@settings(max_examples=60, deadline=None)
@given(
    compressor=st.sampled_from(COMPRESSORS),
    ranks=st.integers(2, 5),
    local=st.integers(1, 40),
    shape=st.tuples(st.integers(0, 3), st.integers(1, 6)),
)
def test_features_cut_over_ranks_become_one_again(compressor, ranks, local, shape) -> None:
    whole = torch.randn(*shape, ranks * local)
    arrays, cut, expected = kept(compressor, whole, "features", ranks, -1)
    joined = join_pieces(cut.join, 2, arrays, Stage(0))
    np.testing.assert_allclose(joined, expected, rtol=1e-5, atol=1e-5)
    if isinstance(compressor, Tile) and local % math.ceil(ranks * local / compressor.tiles) == 0:
        # Tiles that lie within a rank's features cross the interconnect as tiles.
        assert sum(array.size for array in arrays) == expected.size


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize(("shards", "shape"), [("sequence", (2, 8, 12)), ("heads", (2, 4, 6, 12))])
def test_positions_and_heads_are_compressed_before_they_are_joined(compressor, shards, shape) -> None:
    whole = torch.randn(shape)
    arrays, cut, expected = kept(compressor, whole, shards, 2, 1)
    np.testing.assert_allclose(join_pieces(cut.join, 2, arrays, Stage(0)), expected, rtol=1e-5, atol=1e-6)
    # Counts of every piece are as many as those of the whole.
    copies = 2 if isinstance(compressor, Histogram) else 1
    assert sum(array.size for array in arrays) == copies * expected.size


@pytest.mark.parametrize(("shards", "axis"), [("heads", 1), ("features", -1)])
def test_peaks_of_heads_or_keys_that_ranks_hold_are_those_of_the_whole(shards: str, axis: int) -> None:
    whole = torch.rand(2, 4, 9, 10)
    arrays, cut, expected = kept(Peaks(3), whole, shards, 2, axis)
    np.testing.assert_array_equal(join_pieces(cut.join, 2, arrays, Stage(0)), expected)
    # Blocks of keys may lie across the border between two ranks, heads never do.
    assert (sum(array.size for array in arrays) == expected.size) == (shards == "heads")


def test_what_every_rank_holds_needs_no_pieces() -> None:
    whole = torch.randn(2, 3, 8)
    kernel = make_kernel(Tile(2))
    assert cut_of("none", whole.shape, 8, Tile(2), kernel, None, 0, 4).join is None
    # A module that gathers its own output gives the whole, whatever its weight is.
    assert cut_of("features", whole.shape, 8, Tile(2), kernel, None, 0, 4).join is None


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
@pytest.mark.parametrize(
    ("shards", "shape", "axis"),
    [("features", (2, 3, 24), -1), ("features", (2, 3, 14), -1), ("sequence", (2, 8, 12), 1)],
)
@pytest.mark.parametrize("nan", [False, True])
def test_what_the_compressor_loses_of_pieces_is_what_it_loses_of_the_whole(
    compressor, shards, shape, axis, nan
) -> None:
    whole = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    if nan:
        whole[0, 1, 2] = math.nan
    vectors = torch.nn.functional.normalize(torch.randn(3, 2, shape[-1]), dim=-1)
    kernel, error = make_kernel(compressor, vectors), CompressionError(compressor, vectors)
    pieces = whole.chunk(2, axis)
    cuts = [
        cut_of(shards, piece.shape, shape[-1], compressor, kernel, vectors, tp, 2, error)
        for tp, piece in enumerate(pieces)
    ]
    probe = SimpleNamespace(flag=SimpleNamespace(error=error), layer=2)
    outputs = [cut.kernel(piece, 2) for cut, piece in zip(cuts, pieces, strict=True)]
    metas = [
        RowMeta(0, "train", 2, "MLP1_mat_mul", "", "", shape, tuple(output.shape), join=cuts[0].join)
        for output in outputs
    ]
    rows = [
        Row(meta, output, moments_of([piece])[0], errors_of(probe, [piece], [output], [cut])[0])
        for meta, output, piece, cut in zip(metas, outputs, pieces, cuts, strict=True)
    ]
    joiner = Joiner(range(2), str, pytest.fail)
    joiner.put(Batch(1, rows[:1]))
    meta, arrays = pack_pieces(Batch(1), rows[1:], {})
    joiner.take(1, meta, memoryview(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)))
    ((_, (joined,), _),) = joiner.ready()
    expected = float(error(whole, kernel(whole, 2), 2))
    if nan and isinstance(compressor, Projection) and shards == "features":
        # The pieces of the position that is not finite cannot be told from the others once they are added up.
        assert math.isnan(joined.error)
    else:
        assert joined.error == pytest.approx(expected, rel=1e-4, nan_ok=True)


class Joining:
    """A leader's joiner, and what members send it."""

    def __init__(self, ranks: int = 2) -> None:
        self.said: list[str] = []
        self.joiner = Joiner(range(ranks), lambda rank: f"rank {rank} of the test", self.said.append)
        whole = torch.arange(24.0).reshape(1, 2, 12)
        self.cut = cut_of("features", (1, 2, 12 // ranks), 12, NoOp(), make_kernel(NoOp()), None, 0, ranks)
        self.parts = whole.chunk(ranks, -1)
        self.whole = whole.numpy()

    def rows(self, rank: int, layer: int = 1, counts=(0, 0)) -> list[Row]:
        values = self.parts[rank].contiguous().numpy()
        meta = RowMeta(0, "train", layer, "MLP1_mat_mul", "", "NoOp()", (1, 2, 12), values.shape)
        moments = moments_of([self.parts[rank]])[0]
        moments[7:9] = counts
        both = [Row(meta._replace(join=self.cut.join), values, moments)]
        return both if rank else [*both, Row(meta._replace(flag="HiddenStates"), values, moments)]

    def send(self, rank: int, step: int = 1, layer: int = 1, counts=(0, 0)) -> None:
        meta, arrays = pack_pieces(Batch(step), self.rows(rank, layer, counts), {})
        payload = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
        self.joiner.take(rank, meta, memoryview(payload))


@pytest.mark.parametrize("early", [True, False])
def test_a_batch_goes_out_when_its_pieces_are_there_whoever_is_first(early) -> None:
    joining = Joining(3)
    if early:
        joining.send(1)
        joining.send(2, counts=(2, 1))
    joining.joiner.put(Batch(1, joining.rows(0, counts=(1, 0))))
    if not early:
        joining.send(2, counts=(2, 1))
        assert list(joining.joiner.ready()) == []
        joining.send(1)
    ((step, rows, _),) = joining.joiner.ready()
    assert step == 1
    np.testing.assert_array_equal(rows[0].values, joining.whole)
    assert (rows[0].meta.shape, rows[0].meta.join) == ((1, 2, 12), None)
    d = joining.whole - joining.whole.mean()
    expected = [24, 11.5, (d**2).sum(), (d**3).sum(), (d**4).sum(), 0, 23, 3, 1, 0, 1]
    np.testing.assert_allclose(rows[0].moments, expected, rtol=1e-6, atol=1e-3)
    assert rows[1].meta.flag == "HiddenStates"
    assert not joining.joiner.waiting


def test_what_does_not_come_is_named_and_the_rest_goes_out() -> None:
    joining = Joining()
    joining.joiner.put(Batch(1, joining.rows(0)))
    ((_, rows, _),) = joining.joiner.ready(everything=True)
    assert [row.meta.flag for row in rows] == ["HiddenStates"]
    assert joining.joiner.lost_rows == 1
    assert joining.said == [
        "Pieces of 1 tensors of step 1 did not come from rank 1 of the test. These tensors are left out: "
        "MLP1 output, layer 1."
    ]


def test_a_batch_that_alone_is_larger_than_what_may_wait_waits_for_its_pieces(monkeypatch) -> None:
    monkeypatch.setattr("megalens.tracer.tensors.joiner._MOST_BYTES", 10)
    joining = Joining()
    joining.joiner.put(Batch(1, joining.rows(0), nbytes=100))
    assert list(joining.joiner.ready()) == []
    joining.send(1)
    ((_, rows, _),) = joining.joiner.ready()
    assert [row.meta.flag for row in rows] == ["MLP1_mat_mul", "HiddenStates"]
    assert joining.said == []


def test_nobody_is_late_while_what_came_has_not_been_taken() -> None:
    joining = Joining()
    joining.send(1)
    list(joining.joiner.ready())
    joining.joiner.put(Batch(2, joining.rows(0)))
    # As if this thread had waited a minute for a hub that takes nothing; the pieces lie in its queue.
    joining.joiner._waiting[0].since -= 60.0
    assert list(joining.joiner.ready(caught_up=False)) == []
    joining.send(1, step=2)
    ((_, rows, _),) = joining.joiner.ready()
    assert [row.meta.flag for row in rows] == ["MLP1_mat_mul", "HiddenStates"]
    assert joining.joiner.lost_rows == 0


def test_ranks_that_trace_other_tensors_are_told_so() -> None:
    joining = Joining()
    joining.joiner.put(Batch(1, joining.rows(0)))
    joining.send(1, layer=2)
    ((_, rows, _),) = joining.joiner.ready()
    assert [row.meta.flag for row in rows] == ["HiddenStates"]
    assert "do all ranks build the same model?" in joining.said[0]


def test_a_payload_of_another_size_than_announced_is_refused() -> None:
    joining = Joining()
    meta, arrays = pack_pieces(Batch(1), joining.rows(1), {})
    payload = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
    for broken in (payload[:-4], payload + b"1234", b""):
        with pytest.raises(ValueError, match=r"bytes|buffer"):
            joining.joiner.take(1, meta, memoryview(broken))


def test_memory_of_a_step_that_was_joined_is_used_again_only_once_it_is_sent() -> None:
    joining, pool, sent = Joining(), StagePool(), []
    place = SimpleNamespace(rank=0, tp_ranks=(0, 1))
    host = SimpleNamespace(
        place=place,
        name_of=str,
        warn=pytest.fail,
        gather=lambda gatherer: None,
        later=lambda task, *_, **how: (task(), True)[1],
        room=lambda **how: 1 << 30,
        caught_up=lambda: True,
        lose=pytest.fail,
        send=lambda stream, table, step: sent.append(table),
    )
    sender = LeaderSender(host, None)
    sender._joiner = joining.joiner
    for step in (1, 2):
        batch = Batch(step, joining.rows(0))
        cut, whole = batch.rows
        batch.stage = pool.take()
        here = batch.stage.copy(whole.values)
        batch.rows = [cut, whole._replace(values=here)]
        sender.put(batch)
        joining.send(1, step)
        sender._take_joined(joining.joiner)
        # Its own memory is free at once: what lay there was joined, and now waits with the rows of other steps.
        assert batch.stage.wanted == 0
        expected = [joining.whole.ravel().tolist(), whole.values.ravel().tolist()]
        here[...] = -1
    sender.send_ready()
    assert sent[0]["values"].to_pylist() == 2 * expected
    # From now on a step finds memory to be joined in.
    assert joining.joiner._stages.take().size == sum(map(len, expected))


def test_a_step_that_was_joined_is_sent_as_it_lies() -> None:
    joining = Joining()
    for step in (1, 2):
        joining.joiner.put(Batch(step, joining.rows(0)))
        joining.send(1, step)
        (joined,) = joining.joiner.ready()
        if step == 1:
            joined.stage.give_back()
    table, _ = tensors_table([joined], 0)
    sent = table["values"].values.to_numpy()
    assert all(np.shares_memory(row.values, sent) for row in joined.rows)
