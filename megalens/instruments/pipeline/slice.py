"""The entry point of pipelines, which add nothing but ``megalens.pipeline`` and ``megalens.split``."""

from ...slices import Slice

__all__ = ["SLICE"]

SLICE = Slice(name="pipeline")
