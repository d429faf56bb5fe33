"""Perturbations: faults put into weights and activations on purpose, while the training goes on.
docs/perturbations.md says what each does.
"""

from ...protocol import perturb_from_disturbance
from .hooks import IClock, Installed, install_perturbations
from .plan import SITES, PerturbPlan, SitePlan, perturb_plan, site_infos

__all__ = [
    "SITES",
    "IClock",
    "Installed",
    "PerturbPlan",
    "SitePlan",
    "install_perturbations",
    "perturb_from_disturbance",
    "perturb_plan",
    "site_infos",
]
