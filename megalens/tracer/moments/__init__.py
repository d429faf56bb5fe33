"""Count, mean and central moments of tensors, in one pass over their memory, on their device."""

from .measure import kernel_name, measure, measure_each, measure_natively
from .merge import merge_pieces, merge_rows
from .part import TYPES

__all__ = [
    "TYPES",
    "kernel_name",
    "measure",
    "measure_each",
    "measure_natively",
    "merge_pieces",
    "merge_rows",
]
