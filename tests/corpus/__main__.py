"""``python -m tests.corpus``: every script, a table, and 1 as its exit status where anything is wrong,
twice there or missing in silence.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from .traced import FLAGS, STATISTICS, quietly
from .trial import Trial, all_scripts, try_script
from .verdict import ABSENT, BAD, FIRST, RIGHT, SILENT, STAGE, TWICE, WATCHED, WRONG, print_kinds

_MARKS = {
    RIGHT: "=",
    STAGE: "t",
    ABSENT: "-",
    WATCHED: "~",
    WRONG: "W",
    TWICE: "2",
    SILENT: "s",
    FIRST: "1",
    None: ".",
}
_SHORT = (
    "QKV",
    "Prob",
    "Ctx",
    "Out",
    "MLP1",
    "MLP2",
    "Hid",
    "Ids",
    "grad",
    "parm",
    "act",
    "dgra",
    "res",
    "rdgr",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.corpus", description=__doc__)
    parser.add_argument("scripts", nargs="*", help="names of scripts, or a part of them; all when absent")
    parser.add_argument("--sentences", action="store_true", help="also print why what is absent is absent")
    parser.add_argument(
        "--raise", dest="raises", action="store_true", help="let errors of the traced run through"
    )
    parser.add_argument("--list", action="store_true", help="only list the scripts")
    arguments = parser.parse_args()
    chosen = [
        each
        for name, each in all_scripts().items()
        if not arguments.scripts or any(part in name for part in arguments.scripts)
    ]
    if arguments.list:
        for each in chosen:
            print(f"{each.name:28} {each.about}")
        return 0
    began = time.monotonic()
    totals: Counter[str] = Counter()
    trials = []
    print(f"{'':28} loss {' '.join(f'{each:4}' for each in _SHORT)}")
    with quietly():
        for each in chosen:
            trials.append(trial := try_script(each, raises=arguments.raises))
            _print(trial, arguments.sentences)
            totals.update(_kinds(trial))
    good = sum(trial.good for trial in trials)
    print(f"\n{len(trials)} scripts, {good} of them without a fault, in {time.monotonic() - began:.0f} s")
    print(
        "losses equal to the bit:",
        f"{sum(not (trial.losses_differ or trial.failed) for trial in trials)} of {len(trials)}",
    )
    print("rows:", ", ".join(f"{totals[kind]:,} {kind}" for kind in (RIGHT, STAGE, WATCHED, ABSENT, *BAD)))
    print_kinds(BAD, (trial.verdicts for trial in trials), "scripts")
    return int(good < len(trials))


def _kinds(trial: Trial) -> Counter[str]:
    return sum(
        (Counter(counts) for verdict in trial.verdicts for counts in verdict.counts.values()), Counter[str]()
    )


def _print(trial: Trial, sentences: bool) -> None:
    for number, verdict in enumerate(trial.verdicts):
        name = trial.script.name if number == 0 else f"  model {number}"
        cells = [_MARKS[verdict.worst(what)] for what in (*FLAGS, *STATISTICS)]
        print(
            f"{name:28} {'=' if not trial.losses_differ else 'W':4} {' '.join(f'{each:4}' for each in cells)}"
        )
        for (what, kind), sentence in verdict.sentences.items():
            if kind in BAD or (sentences and kind in (ABSENT, WATCHED)):
                print(f"      {kind}: {what} ×{verdict.counts[what][kind]}: {sentence[:400]}")
    if trial.losses_differ:
        print(f"{trial.script.name}: {trial.losses_differ}")
    if trial.failed:
        print(f"{trial.script.name:28} failed with Megalens: {trial.failed[:600]}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
