"""How the pictures look: on a light page of their own, or in the colours of the page around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .colors import palette

__all__ = ["LIGHT", "PAGE_DARK", "PAGE_LIGHT", "Theme"]

_FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"


@dataclass(frozen=True)
class Theme:
    """Colours of a chart's frame.

    Attributes
    ----------
    tone : str
        ``light`` or ``dark``: which ordered and categorical colours are used.
    text, muted, line, grid, background : str
        CSS colours. A CSS variable takes the page's own, and follows it when it changes.
    """

    tone: str
    text: str
    muted: str
    line: str
    grid: str
    background: str

    def config(self) -> dict[str, Any]:
        """Return the Vega-Lite config, the same as ``themeConfig`` in ``src/charts/theme.ts``."""
        words = {"labelFont": _FONT, "titleFont": _FONT, "labelFontSize": 11, "titleFontSize": 11}
        calm = {"labelColor": self.muted, "titleColor": self.muted, "titleFontWeight": "normal"}
        ramp = palette("layers")[self.tone]
        names = palette("categorical")[self.tone]
        if self.background == "transparent":
            names = [f"var(--name-{place})" for place in range(len(names))]
        return {
            "background": self.background,
            "font": _FONT,
            "padding": 4,
            "view": {"stroke": None, "fill": None},
            "axis": {
                **words,
                **calm,
                "titlePadding": 6,
                "domainColor": self.line,
                "tickColor": self.line,
                "gridColor": self.grid,
                "tickSize": 4,
                "labelLimit": 90,
            },
            "header": {
                **words,
                "labelColor": self.text,
                "titleColor": self.muted,
                "labelFontWeight": "normal",
            },
            "legend": {**words, **calm, "symbolStrokeWidth": 2},
            "title": {
                "font": _FONT,
                "subtitleFont": _FONT,
                "color": self.text,
                "subtitleColor": self.muted,
                "fontSize": 13,
                "fontWeight": 600,
                "subtitleFontSize": 11,
                "subtitlePadding": 4,
            },
            "range": {"ramp": ramp, "heatmap": ramp, "category": names},
        }


LIGHT = Theme("light", "#212121", "#616161", "#bdbdbd", "#ececec", "#ffffff")
"""A picture that stands alone: on white, whatever is around it."""

PAGE_LIGHT = Theme("light", "var(--text)", "var(--muted)", "var(--line)", "var(--grid)", "transparent")
PAGE_DARK = Theme("dark", "var(--text)", "var(--muted)", "var(--line)", "var(--grid)", "transparent")
