"""What tracing brings into the training's process."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import sys, torch, megalens
    from megalens.demo.model import GPT, GPTConfig
    model = GPT(GPTConfig(vocabulary=32, layers=2, hidden=16, heads=2, sequence=8))
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, 32, (2, 8))
    with megalens.trace(
        model, record=sys.argv[1], linger=0.1, timeline="operations",
        flags={"HiddenStates": megalens.Tile(4), "InputTokens": True},
    ) as tracer:
        assert tracer.connected(30)
        megalens.monitor(model, optimizer, tracer=tracer)
        for _ in range(5):
            with tracer.step():
                loss = model(ids).logsumexp(-1).mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                tracer.log(loss=loss.detach())
    with open(tracer.folder / "run.json") as file:
        assert '"spans"' in file.read()
    # Importing it stops the training for a quarter of a second, and where pyarrow does so nobody sees it.
    print(sorted({"pandas", "duckdb", "jupyter_server", "ipywidgets"} & set(sys.modules)))
"""


@pytest.mark.slow
def test_a_traced_training_imports_neither_pandas_nor_what_viewers_need(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "runtime"))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr[-2000:]
