"""What the server process imports before the test processes fork from it: each of them would take seconds of its own for it."""

import gc
import warnings

import warm

warm.preload()

with warnings.catch_warnings():
    # Megatron-Core names every optional package that is not there.
    warnings.simplefilter("ignore")
    import megatron_job  # noqa: F401

import perturb_work  # noqa: E402, F401
import torch.distributed.pipelining  # noqa: E402, F401
import torch_statistics_work  # noqa: E402, F401

import megalens.instruments.monitor.training_monitor  # noqa: E402
import megalens.instruments.pipeline.instrument  # noqa: E402
import megalens.instruments.pipeline.schedule  # noqa: E402
import megalens.pictures.engine  # noqa: E402, F401
from megalens.instruments.pipeline.split import SplitTraining  # noqa: E402, F401

# Else a collection of garbage in a forked process writes to all that is shared with this one, and has it copied.
gc.collect()
gc.freeze()
