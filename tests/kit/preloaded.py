"""What the server process imports before the test processes fork from it: each of them would take seconds of its own for it."""

import warnings

import warm

warm.preload()

with warnings.catch_warnings():
    # Megatron-Core names every optional package that is not there.
    warnings.simplefilter("ignore")
    import megatron_job  # noqa: F401

import perturb_work  # noqa: E402, F401
import torch_statistics_work  # noqa: E402, F401
