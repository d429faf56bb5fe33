"""Compressors and layer ranges are checked where they are written down, with the field named."""

import pytest

from megalens.protocol import (
    COMPRESSORS,
    Projection,
    ProtocolError,
    Tile,
    compressor_from_setting,
    compressor_infos,
    parse_layers,
)


@pytest.mark.parametrize(
    ("text", "layers"),
    [("all", [1, 2, 3, 4]), ("3", [3]), ("1-4", [1, 2, 3, 4]), ("1-2,4", [1, 2, 4]), ("4,1", [1, 4])],
)
def test_a_layer_range_names_its_layers(text: str, layers: list[int]) -> None:
    assert parse_layers(text, range(1, 5)) == layers


@pytest.mark.parametrize(
    "text", ["", "5", "0", "1-9", "3-1", "a", "1-", "-2", "1,,2", "1-2-3", "9" * 40, "１"]
)
def test_a_layer_range_that_does_not_fit_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_layers(text, range(1, 5), field="flags.X.layers")
    assert caught.value.code == "unknown-layer"
    assert caught.value.field == "flags.X.layers"


def test_a_compressor_survives_the_trip_through_its_setting() -> None:
    for compressor in (Tile(7, "max"), COMPRESSORS["NoOp"](), COMPRESSORS["Empty"](), Projection("v.npy")):
        assert compressor_from_setting(compressor.to_setting()) == compressor


@pytest.mark.parametrize(
    ("setting", "code", "field"),
    [
        ({"name": "Tyle"}, "unknown-compressor", "c.name"),
        ({"name": "Tile", "params": {"tiles": 0}}, "bad-parameter", "c.params.tiles"),
        ({"name": "Tile", "params": {"tiles": True}}, "bad-parameter", "c.params.tiles"),
        ({"name": "Tile", "params": {"tile": 3}}, "bad-parameter", "c.params.tile"),
        ({"name": "Tile", "params": {"reduction": ""}}, "bad-parameter", "c.params.reduction"),
        ({"name": "Projection"}, "bad-parameter", "c.params.vectors"),
        ({"name": "NoOp", "params": {"x": 1}}, "bad-parameter", "c.params.x"),
    ],
)
def test_a_bad_compressor_names_the_field(setting: dict[str, object], code: str, field: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        compressor_from_setting(setting, "c")
    assert (caught.value.code, caught.value.field) == (code, field)


def test_every_compressor_describes_its_parameters() -> None:
    infos = {info["name"]: info for info in compressor_infos()}
    assert list(infos) == ["Tile", "NoOp", "Empty", "Projection", "Peaks", "Histogram"]
    assert infos["Tile"]["schema"]["properties"]["tiles"]["default"] == 96
    assert infos["Projection"]["schema"]["required"] == ["vectors"]
    assert all(info["description"] for info in infos.values())
