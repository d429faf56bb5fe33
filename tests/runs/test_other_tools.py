"""The page *Read a recording with other tools*: pandas, Polars, DuckDB and run.sql give the same answers."""

import ast
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from recorded_moments import moment_table
from recorded_run import write_run

from megalens.protocol.segments import segment_name
from megalens.runs import open_run
from scripts.snippets.__main__ import snippets_of

PAGE = Path(__file__).parents[2] / "docs" / "other-tools.md"
RUN = "megalens-runs/20261120-101500-gpt"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A run whose streams lie in two segments each, and statistics that were not finite."""
    folder = write_run(tmp_path / RUN)
    random = np.random.default_rng(0)
    moments = moment_table(range(1, 21))
    for name in ("mean", "m2", "nan_count"):
        values = (
            random.poisson(0.1, len(moments)) if name == "nan_count" else random.uniform(1, 2, len(moments))
        )
        at = moments.schema.get_field_index(name)
        moments = moments.set_column(at, name, pa.array(values, pa.float64()))
    pq.write_table(moments, folder / "moments.parquet")
    for stream in ("tensors", "scalars", "moments"):
        table = pq.read_table(folder / f"{stream}.parquet")
        (folder / f"{stream}.parquet").unlink()
        (folder / stream).mkdir()
        for number, rows in enumerate((table.slice(0, 50), table.slice(50))):
            first = rows["step"][0].as_py()
            pq.write_table(rows, folder / stream / segment_name(number, first, ".parquet"))
    monkeypatch.chdir(tmp_path)
    return folder


def test_every_tool_gives_the_same_answers(folder):
    pytest.importorskip("polars")
    run, known, asked = open_run(folder), {}, 0
    for snippet in snippets_of(PAGE):
        answers = []
        for node in ast.parse(snippet.code).body:
            if not isinstance(node, ast.Expr):
                exec(compile(ast.Module([node], []), snippet.place, "exec"), known)
                continue
            answers.append(eval(compile(ast.Expression(node.value), snippet.place, "eval"), known))
            if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "duckdb.sql":
                answers.append(run.sql(ast.literal_eval(node.value.args[0])))
        if len(answers) != 4:
            continue
        asked += 1
        first, *others = (frame(each) for each in answers)
        assert len(first), snippet.place
        for other in others:
            pd.testing.assert_frame_equal(other, first, check_dtype=False, rtol=1e-6, obj=snippet.place)
    assert asked == 10


def frame(answer):
    """Return any tool's table as one of pandas, in whose rows texts are plain."""
    if not isinstance(answer, pd.DataFrame):
        answer = answer.df() if hasattr(answer, "df") else pd.DataFrame(answer.to_dict(as_series=False))
    return pd.DataFrame({name: answer[name].tolist() for name in answer.columns})
