"""A Python that has no engine, no DuckDB, no server, no processes and no threads, as in a browser: recordings can be read."""

import json
import subprocess
import sys

from recorded_run import RUN_ID, write_run

# What cannot be installed or started there.
HIDDEN = ["py_mini_racer", "duckdb", "jupyter_server", "tornado", "torch", "safetensors", "msgspec"]
SCRIPT = """
import importlib.abc, json, subprocess, sys, threading

hidden, folder = json.loads(sys.argv[1]), sys.argv[2]

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def refused(*_, **__):
    raise OSError(138, "Not supported")

sys.meta_path.insert(0, Hidden())
threading.Thread.start = subprocess.Popen.__init__ = refused
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in hidden else found(name, *rest)

import megalens

with megalens.open(folder) as run:
    view = run.heatmap("MLP1_mat_mul")
    bundle = view._repr_mimebundle_()
    try:
        run.sql("select 1")
        sql = ""
    except Exception as error:
        sql = f"{type(error).__name__}: {error}"
    print(json.dumps({
        "rows": [run.tensors("MLP1_mat_mul").num_rows, run.scalars().num_rows],
        "steps": len(run.table("tensors")),
        "picture": bundle["text/html"],
        "options": view.options["flag"],
        "sql": sql,
    }))
"""


def test_a_small_recording_is_read_with_pyarrow_alone(tmp_path):
    folder = write_run(tmp_path / RUN_ID)
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(HIDDEN), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    found = json.loads(answer.stdout)
    assert min(found["rows"]) > 0
    assert found["steps"] > 0
    assert found["options"] == "MLP1_mat_mul"
    assert "need the engine, mini-racer, which is not here" in found["picture"]
    assert "<svg" not in found["picture"]
    assert found["sql"].startswith("ClientError: run.sql(…) needs DuckDB")
