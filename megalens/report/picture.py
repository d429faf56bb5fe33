"""One view of a run as it will be drawn: a filled template with its title, captions and summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import vl_convert

from ..protocol import contract_json
from .colors import one_tone
from .errors import ReportError
from .theme import LIGHT, Theme

__all__ = ["Frame", "Picture"]

_VEGA_LITE = "6.4"


@dataclass(frozen=True)
class Frame:
    """One step of a heatmap that the page can show.

    Attributes
    ----------
    step : int
        The step.
    matrices : dict of int to array
        ``[rows, columns]`` float32 by layer.
    """

    step: int
    matrices: Mapping[int, Any]

    @property
    def page_bytes(self) -> int:
        """About how many bytes of a page the step takes: half floats in base64, hardly smaller for being deflated."""
        return 200 + sum(int(matrix.size) * 2 * 4 // 3 for matrix in self.matrices.values())


@dataclass(frozen=True)
class Picture:
    """A view of a run, ready to be drawn.

    Attributes
    ----------
    options : dict
        The view's options, all of them.
    title : str
        What it is, in words.
    caption : sequence of str
        Whatever is not literal: compressor, sampling, smoothing, clipping, non-finite counts. One sentence each.
    summary : str
        What it shows, for who cannot see it.
    template : str
        Name in ``protocol/charts``, or empty when there is nothing to draw; the caption then says why.
    texts, params, datasets : mapping
        What fills the template, as ``protocol/charts/README.md`` says.
    size : mapping
        ``width`` and ``height`` of one cell in pixels, ``columns`` of the grid.
    frames : sequence of Frame
        Every step that a heatmap was read at, in order; empty elsewhere.
    steps : sequence of int
        Every step that the run has for this view.
    cells : sequence of mapping
        ``step``, ``layer``, ``value`` of a layer × step picture, for its tooltips.
    """

    options: Mapping[str, Any]
    title: str
    caption: Sequence[str] = ()
    summary: str = ""
    template: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    datasets: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    size: Mapping[str, int] = field(default_factory=dict)
    frames: Sequence[Frame] = ()
    steps: Sequence[int] = ()
    cells: Sequence[Mapping[str, Any]] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.template

    def spec(
        self, theme: Theme, *, title: bool = True, hover: bool = True, data: bool = True
    ) -> dict[str, Any]:
        """Return the Vega-Lite spec, valid in version 5.8 and later and in 6, without ``$schema``.

        Parameters
        ----------
        theme : Theme
            Colours of the frame.
        title : bool
            Whether title and caption are in the picture; without, the page writes them.
        hover : bool
            Whether the invisible points that carry tooltips are there.
        data : bool
            Whether the datasets are filled.
        """
        spec: dict[str, Any] = self._walk(contract_json(f"charts/{self.template}.vl.json"), hover)
        if "width" in spec:
            spec.update({name: self.size[name] for name in ("width", "height") if name in self.size})
        params = {**self.params, "title": self.title, "caption": list(self.caption)}
        spec["params"] = [
            {**param, "value": params.get(param["name"], param["value"])} for param in spec["params"]
        ]
        if data:
            spec["datasets"] = {
                **spec["datasets"],
                **{name: _toned(rows, theme) for name, rows in self.datasets.items()},
            }
        spec["config"] = theme.config()
        if not title:
            spec.pop("title", None)
            spec["params"] = [param for param in spec["params"] if param["name"] not in ("title", "caption")]
        return spec

    def vega(
        self, theme: Theme, *, title: bool = False, hover: bool = True, data: bool = True
    ) -> dict[str, Any]:
        """Return the Vega spec that the Vega-Lite one compiles to.

        Raises
        ------
        ReportError
            When the template does not compile.
        """
        try:
            spec = self.spec(theme, title=title, hover=hover, data=data)
            compiled: dict[str, Any] = vl_convert.vegalite_to_vega(spec, vl_version=_VEGA_LITE)
        except ValueError as error:
            raise self._failed(error) from error
        return compiled

    def svg(self, theme: Theme = LIGHT, *, title: bool = True) -> str:
        """Draw it as SVG text. Nothing is loaded from anywhere.

        Raises
        ------
        ReportError
            When it cannot be drawn.
        """
        try:
            text: str = vl_convert.vega_to_svg(
                self.vega(theme, title=title, hover=False), allowed_base_urls=[]
            )
        except ValueError as error:
            raise self._failed(error) from error
        return text

    def _walk(self, node: Any, hover: bool) -> Any:
        if isinstance(node, dict):
            copy = {key: self._walk(value, hover) for key, value in node.items()}
            if copy.get("name") in ("cell", "ramp") and "height" in copy:
                copy["height"] = self.size.get("height", copy["height"])
            if copy.get("name") == "cell" and "width" in copy:
                copy["width"] = self.size.get("width", copy["width"])
            if copy.get("name") == "grid":
                copy["columns"] = self.size.get("columns", copy.get("columns", 1))
            return copy
        if isinstance(node, list):
            kept = (
                node
                if hover
                else [item for item in node if not (isinstance(item, dict) and item.get("name") == "hover")]
            )
            return [self._walk(item, hover) for item in kept]
        if isinstance(node, str) and node.startswith("$"):
            return self.texts[node[1:]]
        return node

    def _failed(self, error: Exception) -> ReportError:
        return ReportError(
            f"Could not draw {self.title}: {str(error)[:300]}. Choose other options for this view."
        )


def _toned(rows: Sequence[Mapping[str, Any]], theme: Theme) -> list[Mapping[str, Any]]:
    """Return rows with colours of one tone, unless the page around them chooses."""
    if (
        theme.background == "transparent"
        or not rows
        or not str(rows[0].get("color", "")).startswith("light-dark(")
    ):
        return list(rows)
    return [{**row, "color": one_tone(str(row["color"]), theme.tone)} for row in rows]
