"""Golden cases of principal components and of Procrustes turns, by numpy's SVD: what scikit-learn's ``StandardScaler``, ``PCA`` and ``scipy.spatial.procrustes`` say."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["projection_cases"]

_Floats = NDArray[np.float64]
_DIGITS = 6
_COMPONENTS = 3


def projection_cases() -> dict[str, list[dict[str, Any]]]:
    """Return points with their components, and layouts with what turns one onto another."""
    rng = np.random.default_rng(19)
    wide = _points(rng, 9, 14)
    holes = _points(rng, 20, 5)
    holes[3, 1], holes[11, 4], holes[12, 0] = np.nan, np.inf, -np.inf
    level = _points(rng, 12, 4)
    level[:, 2] = 7.1
    # As a tracer keeps MLP2_mat_mul: means of 24 tiles, a few of them far from zero.
    tiles = _points(rng, 60, 24)
    tiles[:, 5] += 40
    tiles[:, 17] *= 30
    named = {"tall": _points(rng, 40, 6), "wide": wide, "holes": holes, "level": level, "MLP2_mat_mul": tiles}
    components = [
        {
            "name": name,
            "points": [[_text(value) for value in row] for row in points.tolist()],
            "plain": _components(points.astype(np.float32), standardise=False),
            "standardised": _components(points.astype(np.float32), standardise=True),
        }
        for name, points in named.items()
    ]
    layout = _points(rng, 15, 2)
    angle = np.deg2rad(130)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    noise = 0.2 * rng.standard_normal((15, 2))
    mirror = np.diag([1.0, -1.0])
    turns = [
        _turn("turned", layout, layout @ turn),
        _turn("mirrored", layout, 3 * layout @ mirror @ turn + 5),
        _turn("noisy", layout, layout @ turn + noise),
        _turn("another", layout, _points(rng, 15, 2)),
    ]
    return {"components": components, "turns": turns}


def _points(rng: np.random.Generator, rows: int, columns: int) -> _Floats:
    """Points with variances that fall, so that no two components are alike."""
    mixing = rng.standard_normal((columns, columns)) * 0.6 ** np.arange(columns)[:, None]
    points: _Floats = np.round(rng.standard_normal((rows, columns)) @ mixing, 3)
    return points


def _components(points: NDArray[np.float32], standardise: bool) -> dict[str, Any]:
    kept = np.isfinite(points).all(axis=1)
    rows = points[kept].astype(np.float64)
    centred = rows - rows.mean(axis=0)
    spread = centred.std(axis=0)
    constant = spread < 1e-9 * np.abs(rows.mean(axis=0))
    scale = np.where(constant, 1, spread) if standardise else np.ones_like(spread)
    left, singular, right = np.linalg.svd(centred / scale, full_matrices=False)
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
    variances = singular**2
    return {
        "kept": np.flatnonzero(kept).tolist(),
        "constant": int(constant.sum()),
        "ratios": _rounded(variances[:_COMPONENTS] / variances.sum()),
        "scores": _rounded((left * singular * signs)[:, :_COMPONENTS]),
        "directions": _rounded((right * signs[:, None])[:_COMPONENTS]),
    }


def _turn(name: str, points: _Floats, onto: _Floats) -> dict[str, Any]:
    one, other = (each - each.mean(axis=0) for each in (points, onto))
    left, singular, right = np.linalg.svd(one.T @ other)
    matrix = left @ right
    reach = singular.sum() ** 2 / ((one**2).sum() * (other**2).sum())
    return {
        "name": name,
        "points": _rounded(points),
        "onto": _rounded(onto),
        "matrix": _rounded(matrix),
        "mirrored": bool(np.linalg.det(matrix) < 0),
        "residual": round(1 - float(reach), _DIGITS) + 0.0,
    }


def _rounded(values: _Floats) -> list[Any]:
    # What is left of a zero by rounding has no sign.
    found: list[Any] = (np.round(values, _DIGITS) + 0.0).tolist()
    return found


def _text(value: float) -> float | str:
    return value if np.isfinite(value) else str(value)
