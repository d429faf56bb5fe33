"""Healthy trainings, in which a monitor is to stay silent."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from .hosts import Encoding, InTurns, Lengthening, Mixing, Probing, Recurrent, Regressing, Searching
from .models import Classifying, Dropping, Experts, Half, Tied
from .training import Training
from .unseen import Seeing

__all__ = ["HEALTHY"]


def _lbfgs(weights: Any, rate: float) -> Any:
    return torch.optim.LBFGS(weights, rate, max_iter=3, history_size=5, line_search_fn="strong_wolfe")


_LARGE = (
    partial(Training, seed=1),
    partial(Training, seed=2, schedule="restart", rate=2e-3),
    partial(Training, seed=3, schedule="steps"),
    partial(Training, seed=4, schedule="constant", rate=5e-4),
    partial(Training, seed=5, sgd=True, rate=0.05),
    partial(Training, seed=6, layers=2, hidden=48),
    partial(Training, seed=7, betas=(0.9, 0.999), warmup=100),
    partial(Training, seed=8, batch=8),
    partial(Training, seed=9, clip=0.0, rate=5e-4),
    partial(Training, seed=10, hidden=24, clip=0.3),
    partial(Training, seed=11, parts=2),
    partial(Classifying, seed=12),
    partial(Classifying, seed=13, sgd=True, rate=0.05),
    partial(Experts, seed=14),
    partial(Half, seed=15),
    partial(Tied, seed=16),
    partial(Dropping, seed=17),
    partial(Training, seed=18, resumed=True),
)
_GPT = partial(Training, layers=1, hidden=16)
_optim = torch.optim

HEALTHY: tuple[partial[Training], ...] = (
    *_LARGE,
    # Mixtures of experts.
    partial(Experts, seed=301, layers=1, hidden=16),
    partial(Experts, seed=302, layers=1, hidden=16, batch=4),
    partial(Experts, seed=303, layers=1, hidden=16, betas=(0.9, 0.999), clip=0.0),
    partial(Experts, seed=304, layers=1, hidden=24, warmup=100),
    partial(Experts, seed=305, layers=1, hidden=16, schedule="restart"),
    # Pictures, with batch norms.
    partial(Seeing, seed=306),
    partial(Seeing, seed=307, sgd=True, rate=0.05),
    partial(Seeing, seed=308, batch=16),
    partial(Seeing, seed=309, betas=(0.9, 0.999), clip=0.0, rate=3e-3),
    partial(Seeing, seed=310, schedule="restart"),
    partial(Seeing, seed=311, sgd=True, rate=0.02, batch=8, clip=0.0),
    # Other optimizers.
    partial(_GPT, seed=312, sgd=True, rate=0.1, clip=0.0),
    partial(_GPT, seed=313, optimized=lambda w, r: _optim.SGD(w, r), rate=0.2),
    partial(_GPT, seed=314, optimized=lambda w, r: _optim.SGD(w, r, momentum=0.9, nesterov=True), rate=0.05),
    partial(_GPT, seed=315, optimized=lambda w, r: _optim.RMSprop(w, r), rate=5e-4),
    partial(_GPT, seed=316, optimized=lambda w, r: _optim.Adagrad(w, r), rate=1e-2),
    partial(_GPT, seed=317, optimized=lambda w, r: _optim.NAdam(w, r)),
    partial(_GPT, seed=318, optimized=lambda w, r: _optim.AdamW(w, r, amsgrad=True)),
    partial(_GPT, seed=319, optimized=lambda w, r: _optim.Adam(w, r, weight_decay=1e-4)),
    partial(_GPT, seed=320, optimized=lambda w, r: _optim.Adamax(w, r), rate=2e-3),
    partial(Searching, seed=321, optimized=_lbfgs, rate=0.3, schedule="constant"),
    partial(Searching, seed=322, optimized=_lbfgs, rate=0.1, batch=512),
    partial(Searching, seed=323, optimized=_lbfgs, rate=0.2, hidden=16, schedule="constant"),
    # Curricula.
    partial(Lengthening, seed=324, layers=1, hidden=16),
    partial(Lengthening, seed=325, layers=1, hidden=24, batch=8),
    partial(Mixing, seed=326, layers=1, hidden=16),
    partial(Mixing, seed=327, layers=2, hidden=16, batch=8),
    # Schedules: restarts, a slow and no warm-up, a cool-down, triangles.
    partial(_GPT, seed=328, schedule="restart"),
    partial(_GPT, seed=329, schedule="restart", sgd=True, rate=0.05),
    partial(_GPT, seed=330, warmup=200),
    partial(_GPT, seed=331, warmup=1),
    partial(_GPT, seed=332, schedule="cooldown"),
    partial(_GPT, seed=333, schedule="triangles"),
    partial(_GPT, seed=334, schedule="steps", rate=2e-3),
    # Small batches, and parts of them.
    partial(_GPT, seed=335, batch=2, rate=3e-4),
    partial(_GPT, seed=336, batch=4),
    partial(_GPT, seed=337, batch=4, parts=4, clip=0.0),
    partial(Classifying, seed=338, batch=8),
    partial(Recurrent, seed=339, batch=4),
    # Other models and tasks.
    partial(Recurrent, seed=340),
    partial(Recurrent, seed=341, sgd=True, rate=0.1, hidden=24),
    partial(Regressing, seed=342),
    partial(Regressing, seed=343, norm=True, sgd=True, rate=0.02),
    partial(Regressing, seed=344, batch=8, schedule="constant"),
    partial(Encoding, seed=345),
    partial(Encoding, seed=346, sgd=True, rate=0.05),
    partial(Probing, seed=347, layers=2, hidden=16),
    partial(InTurns, seed=348, layers=1, hidden=16),
    partial(Tied, seed=349, layers=1, hidden=16, resumed=True),
    partial(Dropping, seed=350, layers=1, hidden=16, batch=4),
    partial(Half, seed=351, layers=1, hidden=16, clip=0.0),
)
"""Each differs from every other in its model, optimizer, schedule, data or batch. Thresholds may be chosen with
these seeds; trainings with others judge them.
"""
