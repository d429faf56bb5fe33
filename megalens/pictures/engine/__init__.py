"""The views' own TypeScript, run where there is no page: V8 in a child process."""

from .host import Engine, Progress, run_job, warm_up
from .process import EngineError

__all__ = ["Engine", "EngineError", "Progress", "run_job", "warm_up"]
