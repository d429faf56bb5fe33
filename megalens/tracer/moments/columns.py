"""What a measured row holds, and of which numbers."""

from __future__ import annotations

import torch

from megalens.protocol import MOMENT_COLUMNS

__all__ = ["COLUMNS", "NEAR_ZERO", "TYPES"]

COLUMNS = len(MOMENT_COLUMNS)
"""Figures of a row, in the order of :data:`megalens.protocol.MOMENT_COLUMNS`."""

TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
"""Types of number that can be measured; the native kernel and the GPU's know them by their place here."""

NEAR_ZERO = 1e-8
"""Values whose size is below it count as near zero, where nobody says another."""
