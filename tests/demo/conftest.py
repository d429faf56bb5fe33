"""What the demo's tests share."""

from __future__ import annotations

import torch

# Small models gain nothing from a second thread, and threads that spin while other tests run make them many times slower.
torch.set_num_threads(1)
