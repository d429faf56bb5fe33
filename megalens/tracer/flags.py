"""The catalogue of trace points: what each flag is called and how its tensor is laid out."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FLAGS", "FlagKind"]


@dataclass(frozen=True)
class FlagKind:
    """What one flag means, whatever the model.

    Attributes
    ----------
    title : str
        In words, for a picker.
    parts : tuple of str
        Named parts that it usually has; an empty name is the whole tensor.
    axes : tuple of str
        Axes of one sample after the batch axis.
    exact : bool
        Whether the values name something (token ids), so that they cannot be averaged.
    signed : bool
        Whether values of both signs are usual, so that their mean says little of how large they are.
    gradient : bool
        Whether the model itself computes it, so that it has a gradient.
    """

    title: str
    parts: tuple[str, ...] = ("",)
    axes: tuple[str, ...] = ("position", "feature")
    exact: bool = False
    signed: bool = True
    gradient: bool = True

    @property
    def attends(self) -> bool:
        """Whether its last two axes are queries and keys."""
        return self.axes[-2:] == ("query", "key")


FLAGS: dict[str, FlagKind] = {
    "QKV_mat_mul": FlagKind("Queries, keys and values", parts=("q", "k", "v")),
    "RawAttentionScore_mat_mul": FlagKind(
        "Attention probabilities", axes=("head", "query", "key"), signed=False
    ),
    "ContextLayer_mat_mul": FlagKind("Attention context"),
    "MLP1_mat_mul": FlagKind("MLP1 output"),
    "MLP2_mat_mul": FlagKind("MLP2 output"),
    "AttentionOutput_mat_mul": FlagKind("Attention output"),
    "HiddenStates": FlagKind("Hidden states"),
    "RouterProbabilities": FlagKind(
        "Router probabilities", axes=("position", "expert"), signed=False, gradient=False
    ),
    "ExpertOutputs": FlagKind("Expert outputs", axes=("token", "feature"), gradient=False),
    "InputTokens": FlagKind(
        "Input tokens", parts=("ids", "positions"), axes=("position",), exact=True, gradient=False
    ),
}
