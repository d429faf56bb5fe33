"""The entry point of pipelines, which add nothing but ``megalens.pipeline`` and ``megalens.split``."""

from ...slices import Slice

SLICE = Slice(name="pipeline")
