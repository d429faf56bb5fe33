"""Our configuration in a peer's words: what it can take is sent, the rest is refused by name. Nothing is ever run."""

import pytest
from translation import small

from megalens.hub.dialects.dialect import DIALECTS
from megalens.hub.dialects.gateway import read_request
from megalens.hub.dialects.peer_request import (
    chosen_config,
    default_config,
    peer_reduction,
    peer_request,
    reduction_of,
)
from megalens.protocol import ProtocolError


def with_flag(dialect, flag, name="Tile", params=None, **more):
    config = small(dialect)
    config["flags"][flag] = {"compressor": {"name": name, "params": params or {}}, **more}
    return config


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("mean", "data.mean(dim=-1)"),
        ("data.mean(dim=-1)", "data.mean(dim=-1)"),
        (" mean( data ) ", "data.mean(dim=-1)"),
        ("max", "data.amax(dim=-1)"),
        ("data.abs().mean(-1)", "data.abs().mean(dim=-1)"),
        ("max(abs(data))", "data.abs().amax(dim=-1)"),
        ("abs(data).max()", "data.abs().amax(dim=-1)"),
        ("median", "data.median(dim=-1).values"),
        ("norm()", "data.norm(dim=-1)"),
    ],
)
def test_a_reduction_is_said_in_the_peers_words(ours, theirs):
    assert peer_reduction(ours, "f") == theirs
    # And understood again, by the side that serves.
    assert peer_reduction(reduction_of(theirs, "f"), "f") == theirs


@pytest.mark.parametrize(
    "text", ["std", "quantile(0.9)", "(data > 0).mean()", "__import__('os').system('true')", "", "mean; 1"]
)
def test_what_would_not_mean_the_same_is_refused(text):
    with pytest.raises(ProtocolError) as caught:
        peer_reduction(text, "flags.MLP1_mat_mul.compressor.params.reduction")
    assert caught.value.code == "refused"
    with pytest.raises(ProtocolError):
        reduction_of(text, "f")


@pytest.mark.parametrize("name", DIALECTS)
def test_every_default_can_be_asked_for(name):
    dialect = DIALECTS[name]
    assert peer_request(dialect, default_config(dialect)) == peer_request(
        dialect, chosen_config(dialect, None, None, None)
    )
    assert set(peer_request(dialect, default_config(dialect))["visualization_flags"].values()) <= {
        "True",
        "False",
    }


@pytest.mark.parametrize(
    ("dialect", "config", "field"),
    [
        ("T1", with_flag("T1", "HiddenStates"), "flags.HiddenStates"),
        ("T1", with_flag("T1", "ContextLayer_mat_mul"), "flags.ContextLayer_mat_mul"),
        (
            "T1",
            with_flag("T1", "QKV_mat_mul", params={"tiles": 95}),
            "flags.QKV_mat_mul.compressor.params.tiles",
        ),
        ("T1", with_flag("T1", "MLP1_mat_mul", "NoOp"), "flags.MLP1_mat_mul.compressor.name"),
        ("T2", with_flag("T2", "MLP2_mat_mul", params={"tiles": 5}), "flags.MLP2_mat_mul.compressor"),
        (
            "T2",
            with_flag("T2", "RawAttentionScore_mat_mul"),
            "flags.RawAttentionScore_mat_mul.compressor.name",
        ),
        ("3606", with_flag("3606", "InputTokens"), "flags.InputTokens.compressor.name"),
        ("3606", with_flag("3606", "RawAttentionScore_mat_mul", "NoOp"), "flags.RawAttentionScore_mat_mul"),
        ("3606", with_flag("3606", "HiddenStates", "NoOp", passes=["backward"]), "flags.HiddenStates.passes"),
        ("3606", {**small("3606"), "mode": {"paused": True}}, "mode"),
    ],
)
def test_what_a_peer_cannot_do_is_refused_by_name(dialect, config, field):
    with pytest.raises(ProtocolError) as caught:
        peer_request(DIALECTS[dialect], config)
    assert caught.value.field == field


def test_a_clients_request_is_read_with_booleans_or_strings():
    tile = {
        "compressor_type": "TileCompressor",
        "compressor_configs": {"tiles": 8, "method": "data.amax(dim=-1)"},
    }
    asked = read_request(
        {
            "type": "run_training_step",
            "visualization_flags": {
                "MLP1_mat_mul": True,
                "QKV_mat_mul": "True",
                "MLP2_mat_mul": "False",
                "Odd": True,
            },
            "compressor_config": {"MLP1_mat_mul": tile},
        }
    )
    assert asked == {
        "MLP1_mat_mul": {
            "samples": None,
            "compressor": {"name": "Tile", "params": {"tiles": 8, "reduction": "max"}},
        },
        "QKV_mat_mul": {"samples": None, "compressor": {"name": "Empty", "params": {}}},
    }


@pytest.mark.parametrize(
    "compressor",
    [
        {"compressor_type": "TileCompressor", "compressor_configs": {"method": "exec('1')"}},
        {"compressor_type": "TileCompressor", "compressor_configs": {"method": 3}},
        {"compressor_type": "OtherCompressor"},
        {"compressor_type": "ProjectionCompressor", "compressor_configs": {}},
        "TileCompressor",
        {"compressor_configs": {}},
    ],
)
def test_a_clients_compressor_that_is_not_known_is_refused(compressor):
    request = {
        "visualization_flags": {"MLP1_mat_mul": "true"},
        "compressor_config": {"MLP1_mat_mul": compressor},
    }
    with pytest.raises(ProtocolError) as caught:
        read_request(request)
    assert caught.value.field.startswith("compressor_config.MLP1_mat_mul")
