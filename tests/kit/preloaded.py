"""What the server process imports before the test processes fork from it: each of them would take seconds of its own for it."""

import gc
import sys
import warnings
from pathlib import Path

import warm

# Of one slice alone pytest would not put it there.
sys.path.append(str(Path(__file__).parents[1] / "distributed"))

warm.preload()

with warnings.catch_warnings():
    # Megatron-Core names every optional package that is not there.
    warnings.simplefilter("ignore")
    import megatron_job  # noqa: F401

import perturb_work  # noqa: E402, F401
import torch.distributed.pipelining  # noqa: E402, F401
import torch_statistics_work  # noqa: E402, F401

import megalens.instruments.monitor.training_monitor  # noqa: E402
import megalens.instruments.pipeline.order_control  # noqa: E402
import megalens.instruments.pipeline.schedule  # noqa: E402
import megalens.pictures.engine  # noqa: E402, F401
from megalens.instruments.pipeline.split import SplitTraining  # noqa: E402, F401

# Else a collection of garbage in a forked process writes to all that is shared with this one, and has it copied.
gc.collect()
gc.freeze()
