"""A cut of the corpus, and that the referee notices what is made wrong on purpose."""

import copy

import pytest

from tests.corpus.trial import all_scripts, judge, try_script
from tests.corpus.verdict import BAD, RIGHT, SILENT, TWICE, WRONG

SCRIPTS = all_scripts()


@pytest.fixture(autouse=True)
def _own_hubs(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "rt"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, each in SCRIPTS.items() if each.quick])
def test_what_is_recorded_is_what_the_script_computed(name: str) -> None:
    trial = try_script(SCRIPTS[name], raises=True)
    said = [
        f"{kind}: {what}: {text}" for each in trial.verdicts for (what, kind), text in each.sentences.items()
    ]
    bad = [each for each in said if each.startswith(BAD)]
    assert (bad, trial.losses_differ) == ([], None)


@pytest.mark.slow
def test_the_referee_notices_what_is_made_wrong() -> None:
    script = SCRIPTS["fused_thirds"]
    trial = try_script(script, raises=True)
    assert trial.good
    assert trial.verdicts[0].counts["QKV_mat_mul"] == {RIGHT: 36}

    def judged(change, what: str) -> dict[str, int]:
        recording = copy.copy(trial.recordings[0])
        recording.rows, recording.moments = copy.deepcopy((recording.rows, recording.moments))
        recording.framed = {}
        change(recording)
        return dict(judge(trial.watched[0], recording, stacks=False).counts[what])

    flag = trial.recordings[0].rows[-1]["flag"]

    def keys_for_queries(recording) -> None:
        for row in recording.rows:
            row["part"] = {"q": "k", "k": "q"}.get(row["part"], row["part"])

    assert judged(keys_for_queries, "QKV_mat_mul") == {RIGHT: 12, WRONG: 24}
    assert judged(lambda recording: recording.rows.append(recording.rows[-1]), flag).get(TWICE) == 1
    assert judged(lambda recording: recording.rows.pop(), flag).get(SILENT) == 1

    def halved(recording) -> None:
        for row in recording.moments:
            if row["stat"] == "grad":
                row["mean"], row["m2"], row["min"], row["max"] = (
                    row[each] / 2 for each in ("mean", "m2", "min", "max")
                )

    assert judged(halved, "grad").get(WRONG, 0) >= 80
