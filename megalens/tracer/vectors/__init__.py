"""Files of vectors, one a layer: what is read of them, and nothing that a file holds is run."""

from .loading import load_vectors

__all__ = ["load_vectors"]
