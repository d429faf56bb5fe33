"""Runs without a notebook: what the commands print of a recorded and of a live run."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from recorded_run import RUN_ID, write_run

from megalens.cli import doctor
from megalens.cli.look import sparkline
from megalens.cli.main import main
from megalens.cli.parser import CommandParser
from megalens.runs import open_run


def test_info_says_what_a_recording_holds(tmp_path, capsys):
    folder = write_run(tmp_path / RUN_ID)
    assert main(["info", str(folder), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    with open_run(folder) as run:
        assert (facts["id"], facts["step"], facts["state"]) == (RUN_ID, run.step, run.state)
    assert [each["stream"] for each in facts["streams"]] == ["tensors", "scalars", "audit"]
    assert facts["traced"][0] == {
        "flag": "MLP1_mat_mul",
        "compressor": {"name": "Tile", "params": {"tiles": 16, "reduction": "mean"}},
    }
    assert main(["info", str(folder)]) == 0
    assert f"gpt-demo ({RUN_ID})" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["info", "report", "digest", "tail"])
def test_a_run_that_is_not_there_is_exit_code_2_and_a_sentence(command, runtime, capsys):
    assert main([command, "nothing"]) == 2
    told = capsys.readouterr()
    assert told.err.startswith(f"megalens {command}: No live run is called 'nothing'")
    assert told.out == ""


def test_a_report_and_a_digest_are_written_without_a_notebook(tmp_path, capsys):
    folder = write_run(tmp_path / RUN_ID)
    page, digest = tmp_path / "page.html", tmp_path / "digest.md"
    assert main(["report", str(folder), "-o", str(page), "--views", "scalars"]) == 0
    assert "<svg" in page.read_text()
    assert main(["digest", str(folder), "-o", str(digest)]) == 0
    capsys.readouterr()
    assert main(["digest", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[4:] == digest.read_text().splitlines()[4:]
    assert "## loss" in digest.read_text()
    assert main(["report", str(folder), "-o", str(tmp_path / "no" / "page.html")]) == 2
    assert "There is no folder 'no'" in capsys.readouterr().err


def test_tail_of_an_ended_run_prints_its_last_state(tmp_path, capsys):
    folder = write_run(tmp_path / RUN_ID)
    assert main(["tail", str(folder), "--scalar", "loss"]) == 0
    with open_run(folder) as run:
        last = run.scalars("loss")["value"][-1].as_py()
        assert f"step {run.step:,}  loss {last:.4g} " in capsys.readouterr().out


def test_a_course_keeps_extremes_and_what_is_not_finite():
    values = [1.0] * 1000
    values[500], values[700] = 9.0, float("nan")
    drawn = sparkline(values)
    assert len(drawn) == 30
    assert (drawn[15], drawn[21]) == ("█", "!")
    assert set(drawn) == {"▁", "█", "!"}
    assert sparkline([]) == ""
    assert sparkline([float("inf")]) == "!"


def test_an_unknown_command_names_the_nearest(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["exprot"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "megalens: there is no command 'exprot'. Did you mean export?\n"


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("digest run --jsn", "--json"),
        ("info --jason run", "--json"),
        ("runs --by jbo runs", "job"),
        ("timeline verdit run", "verdict"),
        ("timeline verdict run --metod megascan", "--method"),
        ("completion fsh", "fish"),
    ],
)
def test_an_unknown_word_of_a_command_names_the_nearest(line, meant, capsys):
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f" Did you mean {meant}?\n")


def test_the_help_has_examples_that_are_understood_and_the_exit_codes(capsys, monkeypatch):
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    assert "130 Ctrl-C" in told
    examples = [
        line.split("  ")[1].split(" | ")[0].split()
        for line in told.splitlines()
        if line.startswith("  megalens ")
    ]
    assert len(examples) > 5
    parse = CommandParser.parse_args
    for _, *words in examples:
        seen = []
        monkeypatch.setattr(
            CommandParser,
            "parse_args",
            lambda self, given, seen=seen: seen.append(parse(self, given)) or 1 / 0,
        )
        with pytest.raises(ZeroDivisionError):
            main(words)
        assert seen[0].command == words[0]


def test_the_doctor_says_what_is_wrong_and_nothing_secret(live, runtime, capsys, monkeypatch):
    run = live()
    monkeypatch.setattr(doctor, "_LEAST_FREE", 1 << 62)
    monkeypatch.setattr(doctor, "own_version", lambda: "9.9.9")
    assert main(["doctor", "--json"]) == 1
    printed = capsys.readouterr().out
    found = {each["what"]: each for each in map(json.loads, printed.splitlines())}
    assert found["live runs"]["found"].startswith("1 here")
    assert found["pictures"] == {"what": "pictures", "found": "the engine works", "advice": ""}
    assert "record_bytes" in found["disk"]["advice"]
    assert "install both anew" in found["lab extension"]["advice"]
    token = json.loads((runtime / f"hub-{run.entry.id}.json").read_text())["token"]
    assert token not in printed
    assert str(run.entry.port) not in printed


def test_info_says_nothing_of_layers_that_were_not_found(tmp_path, capsys):
    folder = write_run(tmp_path / RUN_ID)
    header = json.loads((folder / "run.json").read_text())
    header["model"]["layers"] = 0
    (folder / "run.json").write_text(json.dumps(header))
    assert main(["info", str(folder)]) == 0
    assert "layers" not in next(line for line in capsys.readouterr().out.splitlines() if "  model " in line)


def test_compare_says_where_two_runs_part(tmp_path, capsys):
    a = write_run(tmp_path / "a")
    b = write_run(tmp_path / "b", run={"id": "b", "name": "wider", "started": 1.5})
    table = pq.read_table(b / "scalars.parquet")
    steps, values = table["step"].to_numpy(), table["value"].to_numpy().copy()
    loss = np.array(table["name"].to_pylist()) == "loss"
    values[loss & (steps >= 23)] += 0.25
    at = table.schema.get_field_index("value")
    pq.write_table(
        table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type)),
        b / "scalars.parquet",
    )
    assert main(["compare", str(a), str(b), "--json"]) == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)["scalars"]}
    assert found["loss"]["parts_at"] == 23
    assert found["loss"]["b"] - found["loss"]["a"] == pytest.approx(0.25, abs=1e-5)
    assert [each["parts_at"] for name, each in found.items() if name != "loss"] == [None, None]
    assert main(["compare", str(a), str(b)]) == 0
    told = capsys.readouterr().out
    assert "parts at step 23" in told
    assert "B  wider (b)" in told
    assert main(["compare", str(a), str(tmp_path / "c")]) == 2


@pytest.mark.parametrize("command", ["info", "digest", "tail", "report", "export"])
def test_what_a_command_prints_is_json_where_that_is_asked_for(command, tmp_path, capsys, monkeypatch):
    folder = write_run(tmp_path / RUN_ID)
    monkeypatch.chdir(tmp_path)
    assert main([command, str(folder), "--json", *(["--to", "csv"] if command == "export" else [])]) == 0
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) == 1
    told = json.loads(printed)
    assert {"info": "model", "digest": "text", "tail": "value", "report": "path", "export": "rows"}[
        command
    ] in told


def test_the_words_of_commands_are_json_where_that_is_asked_for(capsys):
    main(["completion", "zsh", "--json"])
    assert "--output" in json.loads(capsys.readouterr().out)["digest"]


def test_bash_completes_commands_and_their_options(capsys):
    main(["completion", "bash"])
    script = capsys.readouterr().out
    asked = 'COMP_WORDS=(megalens {}); COMP_CWORD={}; _megalens; echo "${{COMPREPLY[@]}}"'
    for words, expected in (("di", "digest"), ("digest --o", "--output"), ("completion f", "fish")):
        line = asked.format(words, len(words.split()))
        done = subprocess.run(["bash", "-c", f"{script}\n{line}"], capture_output=True, text=True, check=True)
        assert done.stdout.split() == [expected]


def test_info_of_a_recording_imports_only_what_it_needs(tmp_path):
    """They take longer than all else of a short command."""
    folder = write_run(tmp_path / RUN_ID)
    code = (
        "import sys; from megalens.cli.main import main; main(sys.argv[1:]); "
        "heavy = ('pandas', 'duckdb', 'torch', 'websockets', 'asyncio', 'pyarrow.compute', 'urllib.request'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "info", str(folder)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
