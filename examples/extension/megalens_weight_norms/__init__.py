"""A stream and an instrument that fills it: what another package adds to Megalens' training side."""

from .instrument import WeightNorms

__all__ = ["WeightNorms"]
