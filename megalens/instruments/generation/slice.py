"""What the generation lab adds to Megalens."""

from ...slices import Slice

_HERE = "megalens.instruments.generation"
_RUN = f"{_HERE}.requests"
_NOTEBOOK = f"{_HERE}.notebook_generation"

SLICE = Slice(
    name="generation",
    traced=f"{_HERE}.in_training:traced",
    run={name: f"{_RUN}:{name}" for name in ("generate", "generation", "generations", "direction")},
    notebook={name: f"{_NOTEBOOK}:{name}" for name in ("generate", "generation", "generations")},
    commands=f"{_HERE}.cli:add_commands",
)
