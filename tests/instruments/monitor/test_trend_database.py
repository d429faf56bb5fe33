"""The SQLite file of msProbe's trend viewer, read with nothing but sqlite3."""

import sqlite3

import pytest

from megalens.__main__ import main

ACTV = "vpp_stage,name,step,micro_step,norm,mean,shape,dtype\n"
FOLDER = "Nov21_12-20-04-rank2-82ac1f33"


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "out" / FOLDER
    place.mkdir(parents=True)
    rows = [
        ("layers.1.mlp.input", 0, 0, 1.5),
        ("layers.1.mlp.input", 0, 1, "inf"),
        ("layers.1.mlp.input", 1, 0, "nan"),
    ]
    text = "".join(
        f'0,{name},{step},{micro},{norm},2e12,"[2]",torch.float32\n' for name, step, micro, norm in rows
    )
    (place / "actv_0-1.csv").write_text(ACTV + text + "all_reduce,1\n")
    (place / "grad_reduced_1-1.csv").write_text(
        'vpp_stage,name,step,norm,shape,dtype\n0,layers.1.mlp.weight,1,3.0,"[2]",torch.float32\n'
    )
    return tmp_path / "out"


def rows_of(folder):
    with sqlite3.connect(folder / "monitor_data.trend.db") as connection:
        rows = connection.execute(
            "SELECT rank, step, target_name, vpp_stage, micro_step, metric_name, norm, mean, min FROM trend_data"
            " JOIN monitoring_targets USING (target_id) JOIN monitoring_metrics USING (metric_id) ORDER BY metric_name, step"
        ).fetchall()
        tags = connection.execute(
            "SELECT tag_name, category, target_name FROM monitoring_tags JOIN tag_target_mapping USING (tag_id)"
            " JOIN monitoring_targets USING (target_id) WHERE target_name LIKE '%weight' ORDER BY tag_name"
        ).fetchall()
        whole = connection.execute("SELECT * FROM global_stats").fetchall()
    return rows, tags, whole


def test_micro_batches_are_one_axis_over_all_steps(folder, capsys):
    assert main(["monitor", "to-db", str(folder)]) == 0
    rows, tags, whole = rows_of(folder)
    name = "layers.1.mlp.input"
    assert rows == [
        (2, 0, name, 0, 0, "actv", 1.5, 1e9, None),
        (2, 1, name, 0, 0, "actv", 1e9 + 1, 1e9, None),
        (2, 2, name, 0, 0, "actv", None, 1e9, None),
        (2, 2, "layers.1.mlp.weight", 0, 0, "grad_reduced", 3.0, None, None),
    ]
    assert tags == [
        ("layers.1", "layer", "layers.1.mlp.weight"),
        ("mlp", "module", "layers.1.mlp.weight"),
        ("weight", "module", "layers.1.mlp.weight"),
    ]
    assert whole == [(0, 2, 2, "norm,mean", "norm")]
    assert "actv_0-1.csv: 1 line does not fit the header" in capsys.readouterr().err


def test_steps_can_be_the_axis_and_parts_of_names_be_replaced(folder, tmp_path):
    (tmp_path / "names.json").write_text('{"layers.": "blocks.", "mlp": "ffn"}')
    given = ["--micro_step", "false", "--mapping", str(tmp_path / "names.json"), "--db", str(tmp_path)]
    assert main(["monitor", "to-db", str(folder), *given]) == 0
    rows, _, _ = rows_of(tmp_path)
    assert [row[1:5] for row in rows] == [
        (0, "blocks.1.ffn.input", 0, 0),
        (0, "blocks.1.ffn.input", 0, 1),
        (1, "blocks.1.ffn.input", 0, 0),
        (1, "blocks.1.ffn.weight", 0, 0),
    ]


def test_what_cannot_be_read_or_written_is_answered_in_words_and_leaves_the_old_file(
    folder, tmp_path, capsys
):
    (tmp_path / "monitor_data.trend.db").write_text("old")
    assert main(["monitor", "to-db", str(tmp_path / "nowhere"), "--db", str(tmp_path)]) == 2
    assert main(["monitor", "to-db", str(folder), "--db", str(tmp_path / "nowhere")]) == 2
    (tmp_path / "names.json").write_text("[1]")
    assert main(["monitor", "to-db", str(folder), "--mapping", str(tmp_path / "names.json")]) == 2
    said = capsys.readouterr().err
    assert "--db must be a folder that is there" in said
    assert "--mapping must hold an object of texts" in said
    assert (tmp_path / "monitor_data.trend.db").read_text() == "old"
