"""TrainerMon's anomaly files: the same analysis as its own, on files that it wrote and on records of ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from megalens.__main__ import main
from megalens.instruments.monitor.trainermon import anomalies
from megalens.instruments.monitor.trainermon.anomalies import Anomaly, first_anomalies
from megalens.instruments.monitor.trainermon.rules import RecordedRules, rules_from
from megalens.protocol import MegalensError

ALERT = Path(__file__).parents[3].parent / "shared" / "fixtures" / "trainermon" / "alert" / "anomaly_detected"


def anomaly(tag: str, step: int = 1, call: int = 0, **more: int) -> Anomaly:
    record = {"rank": 0, "micro_step": 0, "pp_stage": 0, "vpp_stage": 0, "message": tag, "group_mates": [0]}
    return Anomaly.of({**record, "step": step, "call_id": call, "tag_name": tag, **more})


def write(folder: Path, rank: int, *anomalies: Anomaly, text: str | None = None) -> None:
    path = folder / f"rank{rank}" / "anomaly.json"
    path.parent.mkdir(parents=True)
    records = {each.key: {**each.__dict__} for each in anomalies}
    path.write_text(json.dumps(records) if text is None else text)


@pytest.mark.skipif(not ALERT.is_dir(), reason="the peer's own files are not here")
def test_its_own_file_gives_its_own_analysis(tmp_path, capsys):
    assert main(["anomalies", str(ALERT), "-o", str(tmp_path)]) == 0
    assert (tmp_path / "anomaly_analyse.json").read_bytes() == (ALERT / "anomaly_analyse.json").read_bytes()
    assert capsys.readouterr().out.startswith("The first 8 of 49 anomalies:\n0: Rule AnomalyNan reports")


@pytest.mark.skipif(not ALERT.is_dir(), reason="the peer's own files are not here")
def test_its_own_messages_come_of_the_same_rules():
    records = json.loads((ALERT / "rank0" / "anomaly.json").read_text()).values()
    nans = [each for each in records if "current value nan, history mean nan" in each["message"]]
    assert nans
    for each in nans:
        judge = RecordedRules(rules_from([{"rule_name": "AnomalyNan"}])).judge
        op = each["message"].split("', '")[1].split("'")[0]
        assert judge(each["tag_name"], op, float("nan"), each["step"]) == each["message"]


def test_records_lie_in_the_order_of_the_computation():
    forward = [anomaly("0:a:0/rank0/actv", pp_stage=stage) for stage in (0, 1)]
    backward = [anomaly("0:a:0/rank0/actv_grad", pp_stage=stage) for stage in (1, 0)]
    state = anomaly("0:w/rank0/exp_avg")
    other = anomaly("0:w/rank0/param_origin")
    later = anomaly("0:a:0/rank0/actv", step=2)
    second = anomaly("0:a:1/rank0/actv", micro_step=1)
    wanted = [other, *forward, *backward, state, second, later]
    assert first_anomalies(reversed(wanted), 100) == wanted
    assert first_anomalies(wanted, 2) == wanted[:2]
    assert first_anomalies(wanted, 9, {2}) == [later]


def test_chunks_of_a_stage_run_forwards_and_then_back():
    chunks = [anomaly("0:a/rank0/actv", vpp_stage=v) for v in (0, 1)]
    back = [anomaly("0:a/rank0/post_grad", vpp_stage=v) for v in (1, 0)]
    assert first_anomalies([*back, *chunks][::-1], 9) == [*chunks, *back]


def test_ranks_are_read_together_and_broken_records_left_out(tmp_path, capsys):
    write(tmp_path, 0, anomaly("0:a/rank0/actv", step=3))
    write(tmp_path, 10, anomaly("0:a/rank10/actv", step=2))
    write(tmp_path, 2, text=json.dumps({"bad": {"rank": "two"}, "worse": 3}))
    assert main(["anomalies", str(tmp_path), "--topk", "5"]) == 0
    printed = capsys.readouterr()
    assert list(json.loads((tmp_path / "anomaly_analyse.json").read_text())) == [
        "0:a/rank10/actv_step_2_call_0",
        "0:a/rank0/actv_step_3_call_0",
    ]
    assert "'bad' is left out: rank must be a whole number, got 'two'." in printed.err
    assert "'worse' is left out: a record must be an object, got 3." in printed.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-k", "0"], "--topk must be 1 or more, got 0."),
        (["-s", "3,4"], "--step must be a list of steps such as [3,4], got 3,4."),
        (["--step_list", "[true]"], "--step must be a list of steps"),
        (["-o", "nowhere"], "--out_path must be a folder that is there"),
    ],
)
def test_a_wrong_argument_is_named(tmp_path, capsys, arguments, sentence):
    write(tmp_path, 0, anomaly("0:a/rank0/actv"))
    assert main(["anomalies", str(tmp_path), *arguments]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "[]", '{"a": NaN}'])
def test_a_file_that_is_no_object_of_records_is_named(tmp_path, capsys, text):
    write(tmp_path, 0, text=text)
    assert main(["anomalies", str(tmp_path)]) == 2
    assert "rank0/anomaly.json" in capsys.readouterr().err


def test_files_of_any_size_are_bounded_before_they_are_read(tmp_path, monkeypatch):
    write(tmp_path, 0, text="{" + ",".join(f'"{number}":1' for number in range(9)) + "}")
    monkeypatch.setattr(anomalies, "_MOST_WARNINGS", 5)
    found, warnings = anomalies.read_anomalies(tmp_path)
    assert (found, warnings[5:]) == ([], ["4 more records are left out."])
    monkeypatch.setattr(anomalies, "_MOST_BYTES", 20)
    with pytest.raises(MegalensError, match="at most 20 bytes"):
        anomalies.read_anomalies(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path, capsys):
    assert main(["anomalies", str(tmp_path / "none")]) == 2
    assert "must be a folder that holds rank0/anomaly.json" in capsys.readouterr().err


def test_turbulence_is_above_the_remembered_size():
    judge = RecordedRules(rules_from([{"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.5}}])).judge
    assert [judge("t", "norm", value, 0) is not None for value in (2.0, 2.9, -3.1)] == [False, False, True]
    assert judge("t", "norm", -3.1, 7) is not None
    # Only of norms and means; other operations have sizes of their own.
    assert [judge("t", "max", value, 0) for value in (1.0, 100.0)] == [None, None]


def test_the_message_names_value_and_level():
    judge = RecordedRules(rules_from([{"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.5}}])).judge
    for value in (2.0, 2.9):
        judge("0:w/rank0/post_grad", "norm", value, 0)
    assert judge("0:w/rank0/post_grad", "norm", -3.1, 2) == (
        "Rule AnomalyTurbulence reports anomaly signal in ('0:w/rank0/post_grad', 'norm') at step 2, current value -3.1, history mean 2.009."
    )


def test_a_nan_is_reported_and_an_infinity_only_above_a_threshold():
    plain, above = (
        RecordedRules(rules_from([{"rule_name": "AnomalyNan", **args}])).judge
        for args in ({}, {"args": {"threshold": 10}})
    )
    assert plain("t", "max", float("nan"), 0) is not None
    assert plain("u", "max", float("inf"), 0) is None
    assert above("u", "max", float("inf"), 0) is not None


def test_one_nan_silences_turbulence_for_good():
    judge = RecordedRules(rules_from([{"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.5}}])).judge
    for value in (1.0, float("nan")):
        judge("t", "norm", value, 0)
    assert judge("t", "norm", 1e9, 2) is None


@pytest.mark.parametrize(
    "rules",
    [
        {},
        [{}],
        [{"rule_name": "AnomalyInf"}],
        [{"rule_name": "AnomalyNan", "args": {"threshold": -1}}],
        [{"rule_name": "AnomalyNan", "args": {"threshold": True}}],
        [{"rule_name": "AnomalyNan", "args": 3}],
    ],
)
def test_a_rule_that_is_none_is_refused(rules):
    with pytest.raises(TypeError, match="must be"):
        rules_from(rules)


def test_turbulence_without_a_threshold_is_left_out_with_a_word():
    said: list[str] = []
    assert rules_from([{"rule_name": "AnomalyTurbulence"}], said.append) == []
    assert said == ["AnomalyTurbulence needs args.threshold and was left out."]
