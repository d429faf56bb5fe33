"""Which process does what, against MegaFBD's own formulas."""

import json

import pytest

from megalens.instruments.pipeline.split import SplitError, SplitLayout, launch, rank_map

DEGREES = [(tp, pp, dp) for tp in range(1, 9) for pp in range(1, 5) for dp in (2, 4, 6)]


def test_megafbds_map_is_that_of_its_formulas() -> None:
    for tp, pp, dp in DEGREES:
        table = rank_map(tp, pp, dp, layout="megafbd")
        world = tp * pp * dp
        assert list(table["virtual"]) == list(range(world))
        deleted = []
        for row in table.itertuples():
            block, at = divmod(row.virtual, 2 * tp)
            forward = at < tp
            real = 1 + block * (tp + 1) + (0 if forward else 1 + at - tp)
            tensor = at if forward else at - tp
            assert (row.real, row.role, row.tensor) == (real, "forward" if forward else "backward", tensor)
            # Megatron: v = tp + TP dp + TP DP pp, where an even dp is forward and both of a pair share data.
            assert row.virtual == row.tensor + tp * row.data + tp * dp * row.pipeline
            assert (row.data % 2 == 0) == forward
            assert row.replica == row.data // 2
            # And back.
            block, position = divmod(row.real - 1, tp + 1)
            assert forward == (position == 0)
            deleted.append(tensor if forward else -tensor - 1)
        assert table.attrs["world"] == world * (tp + 1) // (2 * tp) + 1
        assert table.attrs["coordinator"] == 0
        assert 0 not in set(table["real"])
        assert table.attrs["deleted_ranks"] == deleted
    example = rank_map(2, 2, 2, layout="megafbd")
    assert list(example["real"]) == [1, 1, 2, 3, 4, 4, 5, 6]


def test_with_one_flag_every_second_group_is_a_backward_one() -> None:
    for tp, pp, dp in DEGREES:
        table = rank_map(tp, pp, dp, layout="one_flag")
        assert list(table["real"]) == list(table["virtual"]) == list(range(tp * pp * dp))
        assert [role == "backward" for role in table["role"]] == [v // tp % 2 == 1 for v in table["virtual"]]
        assert "coordinator" not in table.attrs


def test_our_own_map_has_no_coordinator_and_any_number_of_replicas() -> None:
    table = rank_map(4, 2, 3, forward_tp=2, last_forward=False)
    assert (table.attrs["world"], table.attrs["forward_tensor"]) == (3 * (2 + 4 + 4), 2)
    assert sorted(set(table["real"])) == list(range(30))
    layout = SplitLayout.of(4, 2, 3, forward_tensor=2, last_forward=False)
    assert (layout.world, layout.share, layout.lanes) == (30, 2, 3)
    for row in table.itertuples():
        here = layout.place(row.real)
        assert (here.role, here.stage, here.replica) == (row.role, row.pipeline, row.replica)
        assert here.tensor == (row.tensor if row.role == "backward" else row.tensor // 2)
        assert layout.rank_of(here.role, here.stage, here.replica, here.tensor) == row.real
        assert all(row.real in layout.peers(each) for each in layout.peers(row.real))
        assert set(layout.peers(row.real)) <= set(layout.connected(row.real)) - {row.real}
        place = layout.tracer_place(row.real)
        assert (place.pp, place.pp_size) == (here.stage + (here.role == "backward"), 3)
        assert place.rank in place.tp_ranks
        assert len(place.tp_ranks) == place.tp_size == here.tensor_size
    with pytest.raises(SplitError, match="0 to 29"):
        layout.place(30)


HOSTS = "cpu0 slots=2 role=forward device=cpu\ngpu0 slots=4 role=backward device=cuda # a comment\n"


def test_hosts_say_where_processes_run(tmp_path) -> None:
    path = tmp_path / "hosts"
    path.write_text(HOSTS)
    table = rank_map(2, 2, forward_tp=1, hosts=path)
    assert set(table[table["role"] == "forward"]["host"]) == {"cpu0"}
    assert set(table[table["role"] == "backward"]["device"]) == {"cuda"}
    told = launch(2, 2, forward_tp=1, hosts=str(path))
    assert json.loads(json.dumps(told)) == told == launch(2, 2, forward_tp=1, hosts=HOSTS)
    assert (told["layout"], told["world"]) == ("megalens", 6)
    first, second = told["processes"][:2]
    assert (first["role"], first["host"], first["device"], first["stage"]) == ("forward", "cpu0", "cpu", 0)
    assert (second["role"], second["host"], second["local_rank"]) == ("backward", "gpu0", 0)
    assert second["env"] == {"RANK": "1", "WORLD_SIZE": "6", "LOCAL_RANK": "0"}
    plain = launch(layout="megafbd", dp=2)
    assert [each["role"] for each in plain["processes"]] == ["coordinator", "forward", "backward"]
    assert plain["processes"][2]["env"]["LOCAL_RANK"] == "2"
    assert plain["processes"][2]["host"] is None


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"tp": 0}, "tensor", "1 to 64, got 0"),
        ({"tp": 4, "forward_tp": 3}, "forward_tensor", "must divide tensor, 4, got 3"),
        ({"dp": 3, "layout": "megafbd"}, "data", "must be even"),
        ({"dp": 1, "layout": "one_flag"}, "data", "must be even"),
        ({"context": 2}, "context", "must be 1, got 2"),
        ({"expert": 2}, "expert", "must be 1, got 2"),
        ({"pp": 2, "world": 3}, "world", "needs 4 processes"),
        ({"last_forward": False}, "last_forward", "must be true with one stage"),
        ({"layout": "fbd"}, "layout", "layout"),
        ({"hosts": "a slots=1\n"}, "hosts", "slots"),
        ({"hosts": "a slots=none\n"}, "hosts", "Line 1"),
        ({"hosts": "/no/such/file"}, "hosts", "cannot be read"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(given, field, words) -> None:
    for asked in (rank_map, launch):
        with pytest.raises(SplitError, match=words) as caught:
            asked(**given)
        assert (caught.value.field, caught.value.code) == (field, "refused")
