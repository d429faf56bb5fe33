"""What pipelines add to Megalens: nothing but their own names, ``megalens.pipeline`` and ``megalens.split``."""

from ...slices import Slice

__all__ = ["SLICE"]

SLICE = Slice(name="pipeline")
