"""The static picture of a view: what every program shows that knows notebooks and nothing of Megalens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..client import ClientError, Run
from ..client.answers import RunAnswers
from ..client.other_runs import beside, kept_open
from ..engine import EngineError, run_job

__all__ = ["draw_picture"]


def draw_picture(run: Run, options: Mapping[str, Any]) -> tuple[str, str]:
    """Draw a view for a cell: SVG text and a caption of one line. Where there is nothing to draw, the SVG is empty and the caption says why.

    A cell must display whatever happens, so this raises nothing that a run, an option or the engine can cause.
    """
    try:
        with kept_open(beside(run)) as others:

            def answers(run_id: str) -> RunAnswers | None:
                found = run if run_id == run.id else others(run_id)
                return None if found is None else RunAnswers(found)

            stills, _ = run_job("still", {"run": run.id, "options": dict(options)}, answers)
    except (EngineError, ClientError) as error:
        return "", error.message
    caption = " ".join(line for each in stills for line in (f"{each['title']}.", *each["caption"]))
    return "".join(each["svg"] for each in stills), caption
