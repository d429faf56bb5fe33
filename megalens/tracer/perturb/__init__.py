"""Perturbations: faults put into weights and activations on purpose; see docs/perturbations.md."""

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
