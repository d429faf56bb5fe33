"""Where the trace points of known models are, and the callback for Hugging Face trainers."""

from .adapter import Adapter
from .callback import MegalensCallback
from .find import ADAPTERS, find_adapter, find_statistics
from .huggingface import GPT2_TABLE, LLAMA_TABLE
from .megatron_core import MegatronAdapter
from .plain_torch import GPT_TABLE
from .sites import sites_of
from .torch_place import mesh_place, torch_place

__all__ = [
    "ADAPTERS",
    "GPT2_TABLE",
    "GPT_TABLE",
    "LLAMA_TABLE",
    "Adapter",
    "MegalensCallback",
    "MegatronAdapter",
    "find_adapter",
    "find_statistics",
    "mesh_place",
    "sites_of",
    "torch_place",
]
