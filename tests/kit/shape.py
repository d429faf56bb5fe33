"""How large the test models are and how they are laid out. Needs neither torch nor Megatron-Core, which would change the test process."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LAYOUTS", "MICRO_BATCHES", "SAMPLES", "SEQUENCE", "STEPS", "VOCABULARY", "Optimizer", "Shape"]

VOCABULARY, SEQUENCE, SAMPLES, MICRO_BATCHES, STEPS = 64, 16, 2, 2, 2
"""Of the whole job; data-parallel replicas share the micro-batches of a step."""


@dataclass(frozen=True)
class Shape:
    """What the model is, and how it is laid out over processes."""

    layers: int = 4
    hidden: int = 32
    heads: int = 4
    groups: int = 4
    swiglu: bool = False
    experts: int | None = None
    tp: int = 1
    pp: int = 1
    vpp: int | None = None
    dp: int = 1
    ep: int = 1
    sequence_parallel: bool = False
    recompute: bool = False
    recompute_mlp: bool = False
    """Whether activations of the MLP, or of the experts, are computed again in the backward pass."""
    tied: bool = False
    """Whether the embedding is the output layer's weight too."""
    shared_expert: bool = False
    predictors: int | None = None
    """Layers of multi-token prediction, one for each token after the next."""
    expert_tp: int | None = None
    context: int = 1
    """Context-parallel ranks: groups and parameters as if there were some; each has sequences of its own, since Megatron-Core's attention on the CPU exchanges no positions."""
    cut_sequence: bool = False
    """Whether context-parallel ranks share sequences after all: with an attention of the tests' own."""

    @property
    def processes(self) -> int:
        return self.tp * self.pp * self.dp * self.context

    @property
    def replicas(self) -> int:
        """Ranks that share the micro-batches of a step."""
        return self.dp * self.context

    def alone(self) -> Shape:
        """The same model in one process."""
        sizes = ("layers", "hidden", "heads", "groups", "swiglu", "experts")
        return Shape(
            **{each: getattr(self, each) for each in (*sizes, "tied", "shared_expert", "predictors")}
        )


@dataclass(frozen=True)
class Optimizer:
    """Which of Megatron-Core's optimizers trains it.

    Attributes
    ----------
    kind : str
        ``sgd`` or ``adam``.
    clip : float
        Largest norm of the gradients.
    distributed : bool
        Whether data-parallel ranks update a piece each.
    dtype : str
        ``float32``, or ``bfloat16`` or ``float16`` with float32 master weights.
    loss_scale : float or None
        Constant factor of the loss.
    """

    kind: str = "sgd"
    clip: float = 0.5
    distributed: bool = False
    dtype: str = "float32"
    loss_scale: float | None = None


LAYOUTS: dict[str, Shape] = {
    "tensor parallel": Shape(tp=2),
    "sequence parallel": Shape(tp=2, sequence_parallel=True),
    "pipeline, one forward and one backward in turn": Shape(pp=2),
    "pipeline, interleaved": Shape(pp=2, vpp=2),
    "data parallel": Shape(dp=2),
    "tensor and pipeline parallel": Shape(tp=2, pp=2),
    "grouped queries": Shape(groups=2, tp=2),
    "fewer query groups than ranks": Shape(groups=1, tp=2),
    "SwiGLU, sequence parallel": Shape(swiglu=True, tp=2, sequence_parallel=True),
    "experts on one rank, pipeline": Shape(experts=4, pp=2),
    "experts on two ranks": Shape(experts=4, dp=2, ep=2),
    "experts, tensor and sequence parallel": Shape(experts=4, tp=2, sequence_parallel=True),
    "full recompute, four processes": Shape(tp=2, pp=2, recompute=True, sequence_parallel=True),
}
