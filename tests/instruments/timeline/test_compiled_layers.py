"""Layers of compiled code are timed, and nothing is compiled anew for it."""

from collections import Counter

import pytest
from compiling import in_place, recompiled, small, train, whole

import megalens
from megalens.runs import open_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("compiler")]


@pytest.mark.parametrize("way", [whole, in_place])
def test_layers_of_compiled_code_are_timed(tmp_path, own_hub, way, caplog) -> None:
    model = small()
    called = ["embedding", "positions", "blocks.0", "blocks.1", "norm", "head"]
    run = way(model)
    tracer = megalens.trace(run, record=tmp_path, linger=0.1)
    own_hub.add(tracer.hub_pid)
    train(run, model, tracer, steps=1)
    graphs = recompiled()
    for granularity in ("layers", "operations", "off", "layers"):
        tracer.configure(timeline=granularity)
        train(run, model, tracer, steps=1)
    assert recompiled() == graphs
    assert "say timeline='operations' in megalens.trace" in caplog.text
    tracer.close()
    rows = open_run(tracer.folder).table("spans").to_pandas()
    assert set(rows["step"]) == {2, 3, 5}
    for step in (2, 5):
        for kind in ("forward", "backward"):
            for micro_batch in (0, 1):
                each = rows[
                    (rows["step"] == step) & (rows["kind"] == kind) & (rows["micro_batch"] == micro_batch)
                ]
                (around,) = each[each["name"] == ""].itertuples()
                inside = each[each["name"] != ""].sort_values("start")
                assert Counter(inside["name"]) == dict.fromkeys(called, 1)
                assert (inside["start"] >= around.start).all()
                assert (inside["end"] <= around.end).all()
                order = [name for name in inside["name"] if name.startswith("blocks")]
                assert order == ["blocks.0", "blocks.1"][:: 1 if kind == "forward" else -1]
