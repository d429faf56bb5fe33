"""The dialects of the hubs that exist, as facts: numbers, names, order. Numbers are used nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...protocol import MegalensError, shown_text
from ...protocol.messages_generated import CompressorSetting, Config, Phase


class DialectError(MegalensError):
    """A foreign hub cannot be reached, is not what it was said to be, or refused what it was asked.

    ``code`` is ``unreachable``, ``dialect``, ``refused`` or ``bad-parameter``.
    """

    def __init__(self, code: str, message: str) -> None:
        # The peer's own words may stand in it.
        self.message = shown_text(message)
        super().__init__(self.message)
        self.code = code


@dataclass(frozen=True)
class Translation:
    """One translation.

    Attributes
    ----------
    address : str
        The foreign hub, ``ws://host:port`` with a path or without.
    dialect : Dialect or None
        Detected where that is possible when None.
    config : dict or None
        The ``Config`` to ask for; the dialect's own when None.
    micro_batches : int
        Forward passes that make one step.
    wait_seconds : float
        How long a peer that cannot be reached is tried again.
    most_steps : int or None
        Steps after which the translation ends.
    prompts : tuple of str
        What to generate from, for an inference hub.
    tokens : int
        How many tokens to generate.
    """

    address: str
    dialect: Dialect | None = None
    config: Config | None = None
    name: str = "foreign"
    micro_batches: int = 1
    wait_seconds: float = 10.0
    most_steps: int | None = None
    prompts: tuple[str, ...] = field(default=())
    tokens: int = 10


@dataclass(frozen=True)
class FlagFacts:
    """What one flag is in the peers' words.

    Attributes
    ----------
    group : str
        Entry of MegatronApp's ``compressor_config`` that serves it, or empty for one that is sent whole.
    never : str
        Why the peer never sends it, or empty.
    always : bool
        Whether the peer sends it whatever is asked.
    needs : str
        Another flag that must be on, or the peer sends none of this.
    """

    title: str
    axes: tuple[str, ...] = ("position", "feature")
    parts: tuple[str, ...] = ("",)
    group: str = ""
    never: str = ""
    always: bool = False
    needs: str = ""


# The peers' thirds of this tensor are not q, k and v: the fused layout interleaves them by query group.
_QKV = FlagFacts("Fused QKV output, as the peer lays it out", group="QKV")
_ATTENTION = FlagFacts("Attention probabilities", axes=("head", "query", "key"))
_MEGATRONAPP = {
    "QKV_mat_mul": _QKV,
    "RawAttentionScore_mat_mul": _ATTENTION,
    "ContextLayer_mat_mul": FlagFacts(
        "Attention context", group="MLP", never="MegatronApp has no code that sends it."
    ),
    "MLP1_mat_mul": FlagFacts("MLP1 output", group="MLP"),
    "MLP2_mat_mul": FlagFacts("MLP2 output", group="MLP"),
}
_MEGATRONAPP_NUMBERS = {
    1: "QKV_mat_mul",
    2: "RawAttentionScore_mat_mul",
    3: "ContextLayer_mat_mul",
    4: "MLP1_mat_mul",
    5: "MLP2_mat_mul",
}


GROUP_TILES = {"QKV": 96, "MLP": 64}
"""Entries of MegatronApp's ``compressor_config``, with the tiles that its page asks for."""


@dataclass(frozen=True)
class Dialect:
    """One foreign hub's language.

    Attributes
    ----------
    name, title : str
        As a person chooses it, and in words.
    numbers : mapping
        Flag names by ``update_type``.
    flags : mapping
        What each flag is, in the order in which one layer's forward pass sends them.
    full_shape : bool
        Whether ``args`` is the whole shape of the payload.
    by_layer : bool
        Whether several processes send, so that order holds within a layer only.
    recomputes : bool
        Whether a recomputed forward pass is sent again.
    claims : bool
        Whether a connection becomes the viewer only by ``run_training_step``.
    most_requests : int
        How often ``run_training_step`` may be sent before the peer blocks on it.
    generates : bool
        Whether it generates text, instead of training.
    candidates : int
        ``update_type`` of the candidates for the next token, which end a forward pass; 0 where there are
        none.
    config : mapping
        The flags that are asked for when nobody chose any: flag to compressor setting.
    """

    name: str
    title: str
    numbers: Mapping[int, str] = field(default_factory=lambda: _MEGATRONAPP_NUMBERS)
    flags: Mapping[str, FlagFacts] = field(default_factory=lambda: _MEGATRONAPP)
    full_shape: bool = False
    by_layer: bool = False
    recomputes: bool = False
    claims: bool = False
    most_requests: int = 1_000_000
    generates: bool = False
    candidates: int = 0
    config: Mapping[str, CompressorSetting] = field(default_factory=dict)

    @property
    def order(self) -> tuple[str, ...]:
        """The flags as one layer's forward pass sends them."""
        return tuple(self.flags)

    @property
    def phase(self) -> Phase:
        """The phase of its rows. A peer's evaluation passes cannot be told from training."""
        return "generate" if self.generates else "train"


def _tile(tiles: int) -> CompressorSetting:
    return {"name": "Tile", "params": {"tiles": tiles, "reduction": "mean"}}


_NO_OP: CompressorSetting = {"name": "NoOp", "params": {}}
_TRAINING = {"QKV_mat_mul": _tile(96), "MLP1_mat_mul": _tile(64), "MLP2_mat_mul": _tile(64)}

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect("T1", "MegatronApp training, main branch", recomputes=True, config=_TRAINING),
        # The third request blocks the handler of the connection for ever.
        Dialect("T2", "MegatronApp training, megascope-update branch", most_requests=2, config=_TRAINING),
        Dialect(
            "3606",
            "Megatron-LM tensor tracer, pull request 3606",
            numbers={
                1: "QKV_mat_mul",
                3: "ContextLayer_mat_mul",
                4: "MLP1_mat_mul",
                5: "MLP2_mat_mul",
                6: "AttentionOutput_mat_mul",
                7: "HiddenStates",
                8: "InputTokens",
            },
            flags={
                "InputTokens": FlagFacts(
                    "Input tokens", axes=("position",), parts=("ids", "positions"), always=True
                ),
                "QKV_mat_mul": _QKV,
                "ContextLayer_mat_mul": FlagFacts("Attention context"),
                "AttentionOutput_mat_mul": FlagFacts("Attention output"),
                "MLP1_mat_mul": FlagFacts("MLP1 output"),
                "MLP2_mat_mul": FlagFacts("MLP2 output"),
                "HiddenStates": FlagFacts("Hidden states"),
            },
            full_shape=True,
            by_layer=True,
            claims=True,
            config={
                **{name: _tile(96) for name in ("QKV_mat_mul", "MLP1_mat_mul", "MLP2_mat_mul")},
                "InputTokens": _NO_OP,
            },
        ),
        Dialect(
            "inference",
            "MegatronApp inference",
            numbers={**_MEGATRONAPP_NUMBERS, 7: "MLP2_Plot"},
            candidates=6,
            flags={
                **_MEGATRONAPP,
                "InputTokens": FlagFacts("Prompt tokens", axes=("position",), parts=("ids",)),
                "MLP2_Plot": FlagFacts(
                    "MLP2 output on its two principal axes",
                    axes=("position", "dimension"),
                    needs="MLP2_mat_mul",
                ),
            },
            generates=True,
            config={
                **_TRAINING,
                **dict.fromkeys(("RawAttentionScore_mat_mul", "InputTokens"), _NO_OP),
            },
        ),
    )
}
