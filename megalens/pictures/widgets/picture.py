"""The static picture of a view: what every program shows that knows notebooks and nothing of Megalens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runs import ClientError, Run
from ...runs.opening import compared_answers
from ..engine import EngineError, run_job

# With what a notebook writes for quotes, and the rest of the output, below 200 kB.
_MOST_LETTERS = 180_000


def draw_picture(run: Run, options: Mapping[str, Any]) -> tuple[str, str]:
    """Draw a view for a cell: SVG text and a caption of one line. An empty SVG has the reason in the caption.

    A cell must display whatever happens, so this raises nothing that a run, an option or the engine can
    cause.
    """
    try:
        with compared_answers(run) as answers:
            stills, _ = run_job("still", {"run": run.id, "options": dict(options)}, answers)
    except (EngineError, ClientError) as error:
        return "", error.message
    svg = "".join(each["svg"] for each in stills)
    caption = " ".join(line for each in stills for line in (f"{each['title']}.", *each["caption"]))
    if len(svg) > _MOST_LETTERS:
        return "", f"{caption} The picture has {len(svg) // 1000:,} kB, too many for a notebook to carry."
    return svg, caption
