"""The engine's recipes and drawings are those of Node, and those over a widget's comm, byte for byte, for every view and kind on the same recorded rows."""

import base64
import json
import re
import subprocess
from functools import cache

import pytest
from engine_bundles import built
from explored_run import write_explored_run

from megalens import open as open_run
from megalens.pictures.engine import Engine
from megalens.protocol import check_view_options
from megalens.runs.answers import RunAnswers

# Two bundles are built and every view is drawn twice before the first test.
pytestmark = pytest.mark.slow
FLAG = "MLP1_mat_mul"
OTHER = "20261121-090000-gpt-again"
KINDS = ["overview", "lines", "layers", "layer_map", "item_map", "map", "tensors", "table"]
VIEWS = [
    {"view": "heatmap", "flag": FLAG},
    {"view": "heatmap", "flag": FLAG, "layers": "all", "transform": "log", "step": 30},
    {"view": "heatmap", "flag": "QKV_mat_mul", "part": "k"},
    {"view": "heatmap", "flag": "RawAttentionScore_mat_mul", "head": 1},
    {"view": "heatmap", "flag": "HiddenStates"},
    {"view": "trend", "flag": FLAG, "transform": "log"},
    {"view": "trend", "flag": FLAG, "layers": "1", "statistic": "kept_abs_mean"},
    {"view": "scalars", "smoothing": 5},
    {"view": "scalars", "names": ["tokens_per_second"], "x": "time"},
    {"view": "history", "flag": FLAG},
    *({"view": "statistics", "kind": kind} for kind in KINDS),
    {"view": "statistics", "stat": "residual", "statistic": "kurtosis", "show": "percent", "smoothing": 3},
    {"view": "statistics", "ratio": "grad_to_param", "by": ["layer", "role"], "transform": "log"},
    {
        "view": "statistics",
        "kind": "map",
        "by": ["name"],
        "columns": "rank",
        "colors": "sigma",
        "cells": ['["decoder.layers.0.mlp.linear_fc1.weight",0]'],
    },
    {"view": "statistics", "kind": "map", "where": {"rank": "0"}, "cells": ["[2,12]"], "transform": "log"},
    {"view": "statistics", "stat": "activation"},
    {"view": "statistics", "runs": [OTHER], "compare": "ratio"},
]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """What the engine, Node, and Node over a widget's comm made of each view: JSON texts."""
    home = tmp_path_factory.mktemp("recipes")
    other = {"id": OTHER, "name": "gpt-again", "started": 1.0}
    runs = [open_run(write_explored_run(home / "own")).run]
    runs.append(open_run(write_explored_run(home / "other", steps=30, run=other)).run)
    answers = {run.id: RunAnswers(run) for run in runs}
    engine = Engine(built(home, "recipes-job"))
    records, texts = [], []

    @cache
    def answered(method, text):
        body = json.loads(text)
        return answers[body["run"]].answer(method, body)

    for options in VIEWS:
        args = {"run": runs[0].id, "options": check_view_options(options)}
        said = {}

        def asked(method, body, said=said):
            text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
            answer, data = answered(method, text)
            encoded = base64.b64encode(data).decode()
            said[f'["{method}",{text}]'] = {"json": answer, "bytes": encoded}
            return answer, data

        found = engine.run("recipes", args, asked)[0]
        texts.append(json.dumps(found, ensure_ascii=False, separators=(",", ":")))
        records.append({"args": args, "answers": said})
    engine.close()
    (home / "records.json").write_text(json.dumps(records))
    script = (
        "globalThis.records = JSON.parse(require('fs').readFileSync(process.argv[1]));"
        "globalThis.say = text => require('fs').writeFileSync(process.argv[3], text);"
        "require(process.argv[2]);"
    )
    files = [home / "records.json", built(home, "recipes-node"), home / "node.json"]
    subprocess.run(["node", "-e", script, *map(str, files)], check=True, timeout=100)
    made = json.loads(files[2].read_text())
    return list(zip(texts, *made, strict=True))


def same(text):
    return json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("place", range(len(VIEWS)), ids=[json.dumps(view) for view in VIEWS])
def test_the_engine_makes_the_recipe_that_node_makes(pairs, place):
    engine, node, _ = pairs[place]
    # Both as Python writes numbers: 1e21 has one text there and another in JavaScript.
    assert engine == same(node)


@pytest.mark.parametrize("place", range(len(VIEWS)), ids=[json.dumps(view) for view in VIEWS])
def test_a_widget_over_its_comm_makes_the_same_recipe(pairs, place):
    _, node, comm = pairs[place]
    # Clips are numbered on over all pictures of the process.
    assert re.sub(r"clip\d+", "clip", comm) == re.sub(r"clip\d+", "clip", node)


def test_every_view_but_one_without_rows_draws_something(pairs):
    drawn = [sum(svg is not None for svg in json.loads(engine)["drawings"]) for engine, *_ in pairs]
    empty = [view for view, count in zip(VIEWS, drawn, strict=True) if not count]
    assert empty == [VIEWS[4], {"view": "statistics", "stat": "activation"}]
    assert drawn[9] == 2
