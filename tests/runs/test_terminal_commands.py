"""Runs without a notebook: what the commands print of a recorded and of a live run."""

import json

import pytest
from recorded_run import RUN_ID, write_run

from megalens.cli import doctor
from megalens.cli.look import sparkline
from megalens.cli.main import main
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
