"""Golden cases of groups of moments: what the server and the page must answer alike."""

from __future__ import annotations

from typing import Any

__all__ = ["group_cases"]

Row = dict[str, Any]
Case = dict[str, Any]


def row(name: str, mean: float, *, step: int = 1, stat: str = "grad", **more: Any) -> Row:
    """A tensor of four values that are all ``mean``: its RMS is its magnitude."""
    return {
        "stat": stat,
        "name": name,
        "step": step,
        "rank": 0,
        "stage": -1,
        "count": 4,
        "mean": mean,
        "nan_count": 0,
        **more,
    }


def answer(keys: list[list[Any]], points: list[list[Any]], **more: int) -> dict[str, Any]:
    """Keys of the groups, and for each row of the answer its group, step and value."""
    steps = len({step for _, step, _ in points})
    return {"keys": keys, "points": points, "groups": len(keys), "steps": steps, **more}


def group_cases() -> list[Case]:
    """Rows, a question as the endpoint takes it (of ``rms`` where it does not say), and the answer or the code of the refusal."""
    model = [
        row("decoder.layers.10.mlp.weight", 3, rank=1, stage=1),
        row("decoder.layers.2.mlp.weight", 1, stage=0),
        row("decoder.layers.2.attention.weight", 2, step=2, stage=0),
        row("decoder.layers.10.mlp.weight", -4, step=2, rank=1, stage=1),
        row("embedding.weight", 5, step=2, rank=-1),
    ]
    modules = [
        row(f"layers.{layer}.mlp/{role}0", size, stat="activation")
        for layer, role, size in (
            (0, "input", 2),
            (0, "output", 6),
            (1, "input", 2),
            (1, "output", 7),
            (2, "output", 9),
        )
    ]
    back = [{**each, "stat": "dgrad"} for each in modules]
    pairs = [
        row("layers.0.a", 2),
        row("layers.0.b", 100),
        row("layers.0.a", 2, step=2),
        row("layers.0.a", 8, stat="param"),
        row("layers.1.a", 8, stat="param"),
        row("layers.0.b", 8, step=3, stat="param"),
        row("layers.0.b", 8, stat="param", rank=7),
    ]
    # No value is there twice: which of equal ones stays is nobody's promise.
    lines = [
        *(row("a", 9 if step == 5 else 1 + step / 64, step=step) for step in range(1, 13)),
        *(row("b", 20 + step, step=step) for step in range(1, 13)),
        *(row("c", 0.5 + step / 64, step=step, nan_count=int(step == 6)) for step in range(1, 13)),
    ]

    def case(doc: str, rows: list[Row], query: dict[str, Any], expected: dict[str, Any]) -> Case:
        return {"doc": doc, "rows": rows, "query": {"statistic": "rms", **query}, **expected}

    def to(keys: list[list[Any]], points: list[list[Any]], **more: int) -> dict[str, Any]:
        return {"expected": answer(keys, points, **more)}

    refused = {"refused": "mixed"}
    gain = {"statistic": "rms", "ratio": "gain"}
    over = {"stat": "grad", "ratio": "grad_to_param"}
    return [
        case(
            "Groups are in natural order, null last.",
            model,
            {"stat": "grad", "by": ["layer"]},
            to([[2], [10], [None]], [[0, 1, 1], [0, 2, 2], [1, 1, 3], [1, 2, 4], [2, 2, 5]]),
        ),
        case(
            "No column is the total.",
            model,
            {"stat": "grad", "by": [], "statistic": "mean"},
            to([[]], [[0, 1, 2], [0, 2, 1]]),
        ),
        case(
            "Columns of rows and of names; what is not known is null.",
            model,
            {"stat": "grad", "by": ["stage", "family", "rank"]},
            to(
                [[0, "attention", 0], [0, "mlp", 0], [1, "mlp", 1], [None, "embedding", None]],
                [[0, 2, 2], [1, 1, 1], [2, 1, 3], [2, 2, 4], [3, 2, 5]],
            ),
        ),
        case(
            "What the pattern's groups find, and nothing of names in which it finds nothing.",
            model,
            {"stat": "grad", "by": ["capture"], "pattern": r"layers\.(\d+)\.(mlp|attention)"},
            to([["2.attention"], ["2.mlp"], ["10.mlp"]], [[0, 2, 2], [1, 1, 1], [2, 1, 3], [2, 2, 4]]),
        ),
        case(
            "Ranges leave out what has no such number, 'all' leaves nothing out.",
            model,
            {"stat": "grad", "by": ["name"], "where": {"layer": "0-3,10", "rank": "1", "stage": "all"}},
            to([["decoder.layers.10.mlp.weight"]], [[0, 1, 3], [0, 2, 4]]),
        ),
        case(
            "Words, a pattern of the name, and a range of steps.",
            model,
            {
                "stat": "grad",
                "by": [],
                "where": {"family": ["mlp", "embedding"], "name": r"\.weight$"},
                "steps": [2, 2],
            },
            to([[]], [[0, 2, 20.5**0.5]]),
        ),
        case(
            "Inputs and outputs do not enter one group,",
            modules,
            {"stat": "activation", "by": ["layer"]},
            refused,
        ),
        case("and none of their total,", modules, {"stat": "activation", "by": []}, refused),
        case(
            "unless that is allowed.",
            modules,
            {"stat": "activation", "by": ["layer"], "mixed": True},
            to([[0], [1], [2]], [[0, 1, 20**0.5], [1, 1, 26.5**0.5], [2, 1, 9]]),
        ),
        case(
            "A role is no mixture.",
            modules,
            {"stat": "activation", "by": ["role"]},
            to([["input"], ["output"]], [[0, 1, 2], [1, 1, (166 / 3) ** 0.5]]),
        ),
        case(
            "A gain is of modules that have both; a filter on the role has no say.",
            modules,
            {"stat": "activation", "by": ["name"], "where": {"role": ["input"]}, **gain},
            to([["layers.0.mlp"], ["layers.1.mlp"]], [[0, 1, 3], [1, 1, 3.5]]),
        ),
        case(
            "A gain of all is of the modules that have both.",
            modules,
            {"stat": "activation", "by": [], **gain},
            to([[]], [[0, 1, (85 / 8) ** 0.5]]),
        ),
        case(
            "Backward it is the other way round.",
            back,
            {"stat": "dgrad", "by": ["layer"], **gain},
            to([[0], [1]], [[0, 1, 1 / 3], [1, 1, 2 / 7]]),
        ),
        case(
            "Gradients over parameters are of names and steps that have both,",
            pairs,
            {"by": ["layer"], **over, "where": {"rank": "0"}},
            to([[0]], [[0, 1, 0.25]]),
        ),
        case(
            "and of those that the filter leaves.",
            pairs,
            {"by": ["name"], **over},
            to([["layers.0.a"], ["layers.0.b"]], [[0, 1, 0.25], [1, 1, 12.5]]),
        ),
        case(
            "What is not finite is among the greatest groups, and its step stays, as do the extremes of each stretch.",
            lines,
            {"stat": "grad", "by": ["name"], "series": 2, "points": 4},
            to(
                [["b"], ["c"]],
                [[0, 1, 21], [0, 12, 32], [1, 1, 0.515625], [1, 6, 0.59375], [1, 12, 0.6875]],
                groups=3,
                steps=12,
            ),
        ),
        case(
            "A spike stays.",
            lines,
            {"stat": "grad", "by": ["name"], "where": {"name": "a"}, "points": 4},
            to([["a"]], [[0, 1, 1.015625], [0, 5, 9], [0, 12, 1.1875]], steps=12),
        ),
        case(
            "Long stretches are whole blocks of steps, 256 of them here, so that they may be read from summaries.",
            [
                row("w", mean, step=step)
                for step, mean in zip(
                    (100, 140, 180, 220, 250, 260, 280, 300, 340, 400, 450, 500),
                    (5, 9, 2, 6, 4, 7, 6, 5, 3, 8, 6, 5),
                    strict=True,
                )
            ],
            {"stat": "grad", "by": ["name"], "points": 8},
            to(
                [["w"]],
                [
                    *([0, 100, 5], [0, 140, 9], [0, 180, 2], [0, 250, 4]),
                    *([0, 260, 7], [0, 340, 3], [0, 400, 8], [0, 500, 5]),
                ],
                steps=12,
            ),
        ),
        case(
            "Against the first value of the whole run, as a mean with the step before, also where that was not asked for.",
            [row("w", mean, step=step) for step, mean in enumerate((2, 4, 8, 6, 10), 1)],
            {"stat": "grad", "by": ["name"], "show": "relative", "smoothing": 2, "steps": [3, 5]},
            to([["w"]], [[0, 3, 3], [0, 4, 3.5], [0, 5, 4]]),
        ),
        case(
            "The change in per cent is of the magnitude of the first value.",
            [row("w", mean, step=step) for step, mean in enumerate((-2, -1, -4), 1)],
            {"stat": "grad", "statistic": "mean", "by": ["name"], "show": "percent"},
            to([["w"]], [[0, 1, 0], [0, 2, 50], [0, 3, -100]]),
        ),
        case(
            "What is smoothed is smoothed over every step, and thinned out by what comes of that.",
            lines,
            {"stat": "grad", "by": ["name"], "where": {"name": "a"}, "points": 4, "smoothing": 2},
            to([["a"]], [[0, 1, 1.015625], [0, 6, 5.046875], [0, 12, 1.1796875]], steps=12),
        ),
        case(
            "The greatest groups are chosen by their values as they are.",
            [
                row(name, mean, step=step)
                for name, means in (("a", (1, 9)), ("b", (20, 21)))
                for step, mean in enumerate(means, 1)
            ],
            {"stat": "grad", "by": ["name"], "series": 1, "show": "delta"},
            to([["b"]], [[0, 1, 0], [0, 2, 1]], groups=2),
        ),
        case(
            "Nothing that matches is no group.",
            model,
            {"stat": "grad", "by": ["layer"], "where": {"layer": "77"}},
            to([], []),
        ),
    ]
