"""Matrices as PNG pictures: one pixel a cell, a block of pixels where a pattern must show."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from .colors import NONFINITE, ColorScale

__all__ = ["paint", "picture_url", "write_png"]

_PIXELS = 2_000_000
_MOST_PER_CELL = 6


def paint(
    matrix: npt.NDArray[np.floating[Any]], scale: ColorScale, missing: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[np.uint8]:
    """Return RGBA pixels, ``[height, width, 4]``, of a matrix with row 0 at the top.

    A finite cell has its colour, a non-finite one its own with diagonals, a missing one is transparent. It is one pixel a cell, or a block
    of equal size for each when some cell is non-finite.
    """
    rows, columns = matrix.shape
    absent = np.zeros(matrix.shape, dtype=bool) if missing is None else missing
    bad = ~np.isfinite(matrix) & ~absent
    size = 1
    if bad.any():
        size = max(1, min(_MOST_PER_CELL, int((_PIXELS / max(1, rows * columns)) ** 0.5)))
    pixels = np.zeros((rows, columns, 4), dtype=np.uint8)
    pixels[..., :3] = scale.table[scale.entries(matrix)]
    pixels[..., 3] = np.where(absent, 0, 255)
    pixels[absent] = 0
    if not bad.any():
        return pixels
    pixels = pixels.repeat(size, axis=0).repeat(size, axis=1)
    wide = bad.repeat(size, axis=0).repeat(size, axis=1)
    places = np.add.outer(np.arange(rows * size), np.arange(columns * size))
    stripe = wide & (places % (2 if size == 1 else 4) == 0)
    pixels[wide] = (*bytes.fromhex(NONFINITE[0][1:]), 255)
    pixels[stripe] = (*bytes.fromhex(NONFINITE[1][1:]), 255)
    return pixels


def write_png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Return a PNG of RGBA pixels; with a palette when it has at most 256 colours, which is a quarter of the size."""
    height, width = pixels.shape[:2]
    packed = np.ascontiguousarray(pixels).view("<u4").reshape(height, width)
    colors, codes = np.unique(packed, return_inverse=True)
    if len(colors) <= 256:
        entries = colors.view(np.uint8).reshape(-1, 4)
        lines: npt.NDArray[np.uint8] = codes.reshape(height, width).astype(np.uint8)
        extra = _chunk(b"PLTE", entries[:, :3].tobytes()) + _chunk(b"tRNS", entries[:, 3].tobytes())
        kind = 3
    else:
        lines = np.ascontiguousarray(pixels).reshape(height, width * 4)
        extra, kind = b"", 6
    filtered = np.zeros((height, lines.shape[1] + 1), dtype=np.uint8)
    filtered[:, 1:] = lines
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    body = _chunk(b"IDAT", zlib.compress(filtered.tobytes(), 9))
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + extra + body + _chunk(b"IEND", b"")


def picture_url(
    matrix: npt.NDArray[np.floating[Any]], scale: ColorScale, missing: npt.NDArray[np.bool_] | None = None
) -> str:
    """Return a matrix as a PNG data URL."""
    return "data:image/png;base64," + base64.b64encode(write_png(paint(matrix, scale, missing))).decode(
        "ascii"
    )


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
