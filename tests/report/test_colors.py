"""Numbers and colours are the same in both languages: jest reads the same golden files."""

import json
import zlib
from pathlib import Path

import numpy as np
import pytest

from megalens.protocol import contract_json
from megalens.report.colors import ColorScale, color_table, hex_color, legend, low_magnitude
from megalens.report.png import paint, write_png
from megalens.report.words import clean, number_text

GOLDEN = Path(__file__).parents[2] / "protocol" / "fixtures" / "pictures"
NUMBERS = json.loads((GOLDEN / "numbers.json").read_text())
SCALES = json.loads((GOLDEN / "scales.json").read_text())


def number(value):
    return float(value) if isinstance(value, str) else value


@pytest.mark.parametrize("case", NUMBERS, ids=lambda case: str(case["value"]))
def test_numbers_are_written_as_in_the_golden_table(case):
    assert number_text(number(case["value"]), case["digits"]) == case["text"]


@pytest.mark.parametrize("case", SCALES, ids=lambda case: case["name"])
def test_values_take_the_colours_of_the_golden_table(case):
    scale = ColorScale(tuple(case["extent"]), case["transform"])
    assert list(scale.domain) == case["domain"]
    assert scale.signed is case["signed"]
    entries = scale.entries(np.array(case["values"], dtype=np.float64))
    assert entries.tolist() == case["entries"]
    assert [hex_color(scale.table[entry]) for entry in entries] == case["colors"]
    params, rows = legend(scale, False)
    assert params["legendText"] == case["legend"]
    assert rows[0]["color"] == case["first"]


def test_the_ends_of_a_table_are_the_ends_of_its_stops():
    for role in ("sequential", "diverging"):
        stops = contract_json("charts/colors.json")[role]
        table = color_table(role)
        assert [hex_color(table[0]), hex_color(table[255])] == [stops[0], stops[-1]]


def test_a_finite_matrix_is_painted_one_pixel_a_cell():
    matrix = np.array([[0.0, 0.5], [1.0, 0.25]], dtype=np.float32)
    pixels = paint(matrix, ColorScale((0, 1)))
    assert pixels.shape == (2, 2, 4)
    assert hex_color(pixels[0, 0, :3]) == "#440154"
    assert hex_color(pixels[1, 0, :3]) == "#fde725"
    assert (pixels[..., 3] == 255).all()


def test_what_is_not_finite_has_its_own_colour_with_diagonals_and_what_is_missing_is_transparent():
    matrix = np.array([[0.0, np.nan], [np.inf, 1.0]])
    missing = np.array([[True, False], [False, False]])
    pixels = paint(matrix, ColorScale((0, 1)), missing)
    assert pixels.shape == (12, 12, 4)
    assert (pixels[:6, :6, 3] == 0).all()
    cell = pixels[:6, 6:]
    colors = {hex_color(cell[row, column, :3]) for row in range(6) for column in range(6)}
    assert colors == {"#ff2bd6", "#5c004b"}
    for row in range(6):
        for column in range(6):
            striped = (row + column + 6) % 4 == 0
            assert hex_color(cell[row, column, :3]) == ("#5c004b" if striped else "#ff2bd6")


def fall(count, decades):
    at = np.arange(count)
    return np.where(at % 2, -1, 1) * 10.0 ** (-at / count * decades)


# The same cases are in src/charts/__tests__/color-scale.spec.ts.
@pytest.mark.parametrize(
    ("values", "decades"),
    [
        (np.arange(-1000, 1001) / 1000, 3),
        (fall(100, 5), 5),
        (fall(100, 12), 9),
        (fall(10_000, 7), 7),
        (np.array([1.0] * 99 + [1e-30]), 3),
        (np.array([0, 0, np.nan, np.inf, 1, 1e-6]), 6),
        (np.array([0, np.nan]), 3),
    ],
)
def test_a_logarithmic_scale_spans_the_decades_of_its_data(values, decades):
    assert ColorScale((-1, 1), "log", low_magnitude(values)).decades == decades


@pytest.mark.parametrize("colors", [3, 1000])
def test_a_png_holds_the_pixels_it_was_given(colors):
    rng = np.random.default_rng(1)
    table = rng.integers(0, 256, (colors, 4), dtype=np.uint8)
    pixels = table[rng.integers(0, colors, (31, 47))]
    assert (read_png(write_png(pixels)) == pixels).all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Projection(vectors='/home/u/models/persona.npy')", "Projection(vectors='…/persona.npy')"),
        ("C:\\Users\\me\\x.npy", "…/x.npy"),
        ("~/runs/a", "…/a"),
        ("file:///home/u/x", "…/x"),
        ("nats/byte and 1/s", "nats/byte and 1/s"),
        ("org/model", "org/model"),
    ],
)
def test_texts_lose_the_folders_of_absolute_paths_and_nothing_else(text, expected):
    assert clean(text) == expected


def read_png(data):
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, at = {}, 8
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert int.from_bytes(data[at + 8 + size : at + 12 + size], "big") == zlib.crc32(name + body)
        chunks[name] = body
        at += 12 + size
    width, height = (int.from_bytes(chunks[b"IHDR"][n : n + 4], "big") for n in (0, 4))
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), dtype=np.uint8).reshape(height, -1)[:, 1:]
    if chunks[b"IHDR"][9] == 3:
        colors = np.frombuffer(chunks[b"PLTE"], dtype=np.uint8).reshape(-1, 3)
        alpha = np.frombuffer(chunks[b"tRNS"], dtype=np.uint8)
        return np.concatenate([colors, alpha[:, None]], axis=1)[lines]
    return lines.reshape(height, width, 4)
