"""``megalens compare``: how two runs were made, where their numbers part and how they end; or many."""

from __future__ import annotations

import argparse
import json
import math
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ..protocol import MegalensError, shown_text
from .look import add_command, open_target, run_facts, sparkline, with_run

if TYPE_CHECKING:
    from ..runs import Run
    from ..runs.compared_runs import ComparedRuns

_APART = 1e-6
_ENDS = 0.1


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_command(
        commands,
        "compare",
        "say where two runs part: settings, each number's course and end, alarms",
        _compare,
    )
    parser.add_argument(
        "others",
        nargs="*",
        metavar="OTHER",
        help="another run; with more runs, a pattern (runs/*) or a folder of runs: a table, outliers first",
    )
    parser.add_argument("--scalar", metavar="NAME", help="of many runs: the number (default: a loss)")
    parser.add_argument(
        "--scale", choices=["linear", "log"], default="linear", help="of many runs: how distance is measured"
    )
    parser.add_argument("--limit", type=int, default=40, help="of many runs: at most so many (default: 40)")
    parser.set_defaults(run=_of_two_or_many)


def _of_two_or_many(arguments: argparse.Namespace) -> int:
    if len(arguments.others) == 1:
        return with_run(arguments, _compare)
    from ..runs.compared_runs import compare

    try:
        return _many(
            compare([arguments.target, *arguments.others], arguments.scalar, scale=arguments.scale), arguments
        )
    except MegalensError as error:
        print(shown_text(f"megalens compare: {error}"), file=sys.stderr)
        return 2


def _many(runs: ComparedRuns, arguments: argparse.Namespace) -> int:
    shown = runs.order[: max(0, arguments.limit)].tolist()
    names = [runs.folders[at].name for at in shown]
    if arguments.json:
        for name, at in zip(names, shown, strict=True):
            facts = {
                key: str(each) if isinstance(each, float) and not math.isfinite(each) else each
                for key, each in runs.facts(at).items()
            }
            print(json.dumps({"run": name, **facts}))
        return 0
    width = min(40, max(map(len, names), default=0))
    print(f"{len(runs.courses):,} runs, outliers first")
    for name, at in zip(names, shown, strict=True):
        facts, course = runs.facts(at), runs.courses[at]
        why = {"not-finite": f"not finite from step {course.bad_at:,}", "usual": ""}.get(
            facts["why"], facts["why"]
        )
        line = (
            f"  {name:{width}.{width}}  {sparkline(course.tops()):30}  ends at {facts['final']:<9.4g} least "
            f"{_short_number(facts['min']):9} step {course.end:<9,} apart {facts['distance']:<9.3g} {why}"
        )
        print(shown_text(line.rstrip(), 600))
    if len(runs.courses) > len(shown):
        print(f"  and {len(runs.courses) - len(shown):,} more (--limit)")
    return 0


def _short_number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _compare(run: Run, arguments: argparse.Namespace) -> int:
    with closing(open_target(arguments.others[0])) as other:
        found = compared(run, other)
    if arguments.json:
        print(json.dumps(found))
        return 0
    for name, each in (("A", run), ("B", other)):
        print(shown_text(f"{name}  {each.name} ({each.id})", 600))
    for each in found["settings"]:
        print(shown_text(f"  {each['setting']}: {_short(each['a'])} → {_short(each['b'])}", 600))
    for each in found["scalars"]:
        parts = (
            f"parts at step {each['parts_at']:,}" if each["parts_at"] is not None else "the same at all steps"
        )
        line = (
            f"  {each['name']}: ends at {each['a']:.4g} and {each['b']:.4g} "
            f"({100 * each['change']:+.2f} %); {parts}"
        )
        print(shown_text(line, 600))
    for name, only in (("A", found["only_a"]), ("B", found["only_b"])):
        if only:
            print(shown_text(f"  only {name} has {', '.join(only)}", 600))
    print(f"  alarms: {found['alarms'][0]} and {found['alarms'][1]}")
    return 0


def compared(a: Run, b: Run) -> dict[str, Any]:
    """Return what two runs have apart.

    ``settings`` that differ; of each scalar that both have its end (the mean of its last tenth), the relative
    change of B, and the first common step at which the two are apart by more than 1e-6 of the larger
    (``parts_at``, None where they never are); names that only one has; how many alarms each has.
    """
    facts = [_settings(run_facts(run)) for run in (a, b)]
    courses = [_courses(run) for run in (a, b)]
    both = [name for name in courses[0] if name in courses[1]]
    return {
        "a": a.id,
        "b": b.id,
        "settings": [
            {"setting": name, "a": facts[0].get(name), "b": facts[1].get(name)}
            for name in {**facts[0], **facts[1]}
            if facts[0].get(name) != facts[1].get(name)
        ],
        "scalars": [_apart(name, courses[0][name], courses[1][name]) for name in both],
        "only_a": [name for name in courses[0] if name not in courses[1]],
        "only_b": [name for name in courses[1] if name not in courses[0]],
        "alarms": [run.table("alarms").num_rows for run in (a, b)],
    }


def _settings(facts: dict[str, Any]) -> dict[str, Any]:
    traced = {f"traced {each['flag']}": each for each in facts["traced"]}
    model = {f"model {name}": value for name, value in (facts["model"] or {}).items()}
    layout = {f"layout {name}": value for name, value in (facts["layout"] or {}).items()}
    return {"state": facts["state"], "last step": facts["step"], **model, **layout, **traced}


def _courses(run: Run) -> dict[str, Any]:
    """Return each scalar's values by step: the last one of a step and of the first rank that has it."""
    frame = run.scalars().to_pandas().sort_values(["rank"], kind="stable")
    return {
        str(name): rows[rows["rank"] == rows["rank"].iloc[0]].groupby("step")["value"].last()
        for name, rows in frame.groupby("name", sort=True, observed=True)
    }


def _apart(name: str, a: Any, b: Any) -> dict[str, Any]:
    common = a.index.intersection(b.index)
    left, right = a[common], b[common]
    same = (left == right) | (left.isna() & right.isna())
    near = (left - right).abs() <= _APART * left.abs().combine(right.abs(), max)
    parts = common[~(same | near).to_numpy()]
    ends = [float(each.iloc[-max(1, round(len(each) * _ENDS)) :].mean()) for each in (a, b)]
    return {
        "name": name,
        "a": ends[0],
        "b": ends[1],
        "change": (ends[1] - ends[0]) / abs(ends[0]) if ends[0] else float(ends[1] != ends[0]),
        "steps": len(common),
        "parts_at": int(parts[0]) if len(parts) else None,
    }


def _short(value: Any) -> str:
    return "none" if value is None else json.dumps(value) if isinstance(value, dict | list) else str(value)
