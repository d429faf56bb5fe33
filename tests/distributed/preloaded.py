"""What the server process imports before the test processes fork from it."""

import warnings

with warnings.catch_warnings():
    # Megatron-Core names every optional package that is not there.
    warnings.simplefilter("ignore")
    import megatron_job  # noqa: F401

import megalens.adapters  # noqa: F401
