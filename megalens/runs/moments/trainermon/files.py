"""Finding the CSV files that TrainerMon wrote, in both of its layouts."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["KINDS", "OTHER_KINDS", "csv_kind", "rank_of_folder"]

KINDS = {
    "actv": "activation",
    "actv_grad": "dgrad",
    "grad_unreduced": "grad_unreduced",
    "grad_reduced": "grad",
    "exp_avg": "exp_avg",
    "exp_avg_sq": "exp_avg_sq",
    "param_origin": "param_origin",
    "param_updated": "param",
}
"""What each kind of file measures, in words of the stream ``moments``."""

OTHER_KINDS = ("attention_hook", "linear_hook", "moe_router_weight_hook", "moe_router_logit_hook", "other")

_FIRST = re.compile(rf"({'|'.join((*KINDS, *OTHER_KINDS))})_(\d{{1,15}})-(\d{{1,15}})(_part_\d{{1,9}})?\.csv")
# Monitor V2.
_SECOND = re.compile(r"(module|weight_grad|optimizer|param|cc)_step(\d{1,15})-(\d{1,15})\.csv")
_FOLDER = re.compile(r"[\w-]{0,20}-rank(\d{1,5})-[\w-]{0,20}|rank_(\d{1,5})")


def csv_kind(name: str) -> str | None:
    """Return what a file is of, such as ``grad_reduced``, by its name; None where it is none of TrainerMon's."""
    found = _FIRST.fullmatch(name) or _SECOND.fullmatch(name)
    return None if found is None else found[1]


def rank_of_folder(folder: str | os.PathLike[str]) -> int | None:
    """Return whose output a folder holds, by its name, such as ``Nov21_12-20-04-rank0-82ac1f33`` or ``rank_0``; None for any other."""
    found = _FOLDER.fullmatch(Path(folder).name)
    return None if found is None else int(found[1] or found[2])
