"""Trace points that are taken as they are, for tests of models that are not what these say."""

from __future__ import annotations

from typing import Any

from megalens.tracer import ModelPoints


class AsSupposed:
    """An adapter of which no forward pass is watched."""

    def __init__(self, adapter: Any) -> None:
        self.adapter = adapter

    def points(self, model: Any) -> ModelPoints:
        return self.adapter.points(model)
