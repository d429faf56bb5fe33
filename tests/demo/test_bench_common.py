"""What the benchmarks report."""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import pytest

from bench import common
from bench.__main__ import NAMES, main
from bench.common import Measured, Row, benchmark, judged, percentile, ratio, verdict, write_results


def test_a_ratio_lies_inside_its_interval_and_the_interval_holds_the_truth() -> None:
    rng = random.Random(1)
    below = [rng.gauss(100, 5) for _ in range(200)]
    above = [value * 1.02 + rng.gauss(0, 0.5) for value in below]
    found = ratio(above, below)
    assert found.low < 1.02 < found.high
    assert found.high - found.low < 0.005
    assert found.low <= found.value <= found.high


def test_too_few_figures_are_refused() -> None:
    with pytest.raises(ValueError, match="at least three matching figures a side, got 3 and 2"):
        ratio([1, 2, 3], [1, 2])


def test_percentiles_interpolate() -> None:
    assert percentile([4, 1, 2, 3], 50) == 2.5
    assert percentile([5], 99) == 5


def test_results_say_what_was_missed_and_nothing_that_names_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    rows = [
        Row("cost", 1.5, "%", 1.2, 1.8, "≤ 1 %", False, "a reason"),
        Row("speed", 0.9, "", target="≥ 0.8", met=True),
    ]
    path = write_results("sample", "A sample", rows, how="By hand.")
    text = path.read_text()
    assert "| cost | 1.5 % | 1.2 to 1.8 | ≤ 1 % | **missed** · a reason |" in text
    assert "| ≥ 0.8 | met |" in text
    body = json.loads((tmp_path / "sample.json").read_text())
    assert body["rows"][0]["met"] is False
    assert body["machine"].keys() == {"processor", "cores", "system", "python", "packages"}
    assert str(Path.home()) not in json.dumps(body) + text


def test_a_cost_whose_interval_holds_the_target_is_neither_met_nor_missed() -> None:
    assert verdict(-0.5, 0.9, 1.0) is True
    assert verdict(1.2, 3.0, 1.0) is False
    assert verdict(-32.0, 24.0, 1.0) is None


def test_the_list_says_of_every_benchmark_what_it_measures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in said if not line.startswith(" ")] == list(NAMES)
    assert sum("≤" in line or "≥" in line for line in said) > len(NAMES)


@pytest.mark.parametrize(
    ("value", "target", "met"),
    [
        (1, "≤ 1", True),
        (1.1, "≤ 1 ms", False),
        (2e3, "> 1,999", True),
        (0, "0", True),
        (1, "0", False),
        (-9, "± 10", True),
    ],
)
def test_a_figure_is_held_against_its_target(value: float, target: str, met: bool) -> None:
    assert judged("figure", value, "", target).met is met


def test_a_benchmark_has_its_options_a_folder_and_results_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", "")

    @benchmark("A sample", "one", rounds=(3, 1, "rounds"), only=(str, "one of them"))
    def sample(options: argparse.Namespace) -> Measured:
        """Count rounds."""
        assert (options.only, list(options.folder.iterdir())) == (None, [])
        return Measured([Row("rounds", options.rounds, "")], "By hand.", {"more": 1})

    for arguments, rounds in ([], 3), (["--quick"], 1), (["--quick", "--rounds", "2"], 2):
        sample(arguments)
        body = json.loads((tmp_path / "sample.json").read_text())
        assert (body["rows"][0]["value"], body["quick"]) == (rounds, "--quick" in arguments)
    assert body["machine"]["more"] == 1
