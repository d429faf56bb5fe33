"""One scalar of many recorded runs, as the table of runs draws it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ...runs.compared_runs import ComparedRuns
from ...runs.run_courses import RunCourses, scalar_names
from .read_handler import ReadHandler

_MOST_SCALARS = 4
_OUTLIERS = 12
_SMALL = 48


class ComparedHandler(ReadHandler):
    """``courses``: quantiles over the runs that the server names, outliers first."""

    async def post(self) -> None:
        # The server's own request, which may name more runs than a page's body can.
        self.answer(await self.alone(self._compared, json.loads(self.request.body)))

    def _compared(self, asked: dict[str, Any]) -> dict[str, Any]:
        ids, folders = list(asked["places"]), [Path(each["folder"]) for each in asked["places"].values()]
        names = scalar_names(folders)
        name = asked.get("name") or (names[0] if names else "loss")
        courses = self._courses(name, Path(asked["home"])).of(folders)
        there = [at for at, course in enumerate(courses) if course is not None and len(course.block)]
        chosen = [each for each in courses if each is not None and len(each.block)]
        scale = asked.get("scale", "linear")
        compared, small = (ComparedRuns.of(chosen, scale, most) for most in (256, _SMALL))
        runs: list[dict[str, Any]] = []
        for at in compared.order.tolist():
            fine = len(runs) < _OUTLIERS and compared.why(at) != "usual"
            lines = compared if fine else small
            facts = compared.facts(at)
            facts = {key: _plain(each) if isinstance(each, float) else each for key, each in facts.items()}
            low, high = (_row(each[at]) for each in (lines.low, lines.high))
            runs.append({"id": ids[there[at]], **facts, "low": low, "high": high})
        asked_ids = asked.get("runs", ids)
        row_of = {ids[at]: row for row, at in enumerate(there)}
        groups = []
        for group in asked.get("groups", ()):
            of = (asked_ids[at] for at in group["runs"] if at < len(asked_ids))
            rows = [row_of[run] for run in dict.fromkeys(of) if run in row_of]
            bands, counts = small.bands_of(rows)
            figures = {"quantiles": [_row(each) for each in bands], "counts": counts.tolist()}
            groups.append({"name": group["name"], "runs": len(rows), **figures})
        return {
            "name": name,
            "names": names,
            "scale": scale,
            "steps": compared.steps.astype(int).tolist(),
            "quantiles": [_row(each) for each in compared.quantiles],
            "counts": compared.counts.tolist(),
            "runs": runs,
            "groups": groups,
            "left_out": len(asked_ids) - len(there),
        }

    def _courses(self, name: str, home: Path) -> RunCourses:
        known: dict[str, RunCourses] = self.settings["courses"]
        if name not in known:
            while len(known) >= _MOST_SCALARS:
                known.pop(next(iter(known)))
            known[name] = RunCourses(name, home)
        return known[name]


def _row(values: Any) -> list[float | None]:
    return [_plain(each) for each in np.asarray(values).tolist()]


def _plain(value: float) -> float | None:
    # Six digits are more than a picture shows, and half of the text.
    return float(f"{value:.6g}") if np.isfinite(value) else None
