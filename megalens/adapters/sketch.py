"""The table of a model that is not recognised, filled in as far as its structure tells."""

from __future__ import annotations

from torch import nn

from .layer_roles import LayerRoles, layer_roles
from .sizes import hidden_size, text_config
from .structure import embeddings_of
from .unwrap import bare

__all__ = ["sketch"]

_ENTRIES = (
    ("attention", "attention", "below a layer: its output is AttentionOutput_mat_mul"),
    ("qkv", "attention.qkv", "fused; or q=, k= and v="),
    ("context", "attention.projection", "its input is ContextLayer_mat_mul"),
    (
        "probabilities",
        "attention.scores",
        'its output is the probabilities; "attention[1]" for a second value',
    ),
    ("fc1", "mlp.fc1", "MLP1_mat_mul; or gate_up=; or gate= and up="),
    ("fc2", "mlp.fc2", "MLP2_mat_mul"),
)
_INSTEAD = {"qkv": ("q", "k", "v"), "fc1": ("gate_up", "gate", "up")}


def sketch(body: nn.Module) -> str:
    """Return Python that makes an ``Adapter``. It is complete as it stands: what was not found is a comment."""
    stack, roles = _most_likely(body)
    tokens = embeddings_of(body, stack, "")[0] if stack else None
    path = f"{stack}.{{i}}" if stack else "blocks.{i}"
    lines = [_line("layer", path, "path of layer i; its output is HiddenStates")]
    for entry, example, says in _ENTRIES:
        found = {name: getattr(roles, name) for name in (entry, *_INSTEAD.get(entry, ()))}
        found = {name: value for name, value in found.items() if value and (entry != "probabilities")}
        lines += [_line(name, value, says) for name, value in found.items()] or [
            _line(entry, example, says, known=False)
        ]
    if roles.mixture is not None:
        lines.append(f"    mixture={roles.mixture!r},  # the experts and their router")
    lines.append(
        _line(
            "tokens",
            tokens or "embedding",
            "from the root: its input is the token ids",
            known=tokens is not None,
        )
    )
    if getattr(text_config(body), "num_attention_heads", None) is None:
        lines.append("    # heads=4, kv_heads=4,  # model.config does not say")
    return "\n".join(
        (
            "from megalens.adapters import Adapter, Mixture"
            if roles.mixture
            else "from megalens.adapters import Adapter",
            "adapter = Adapter(",
            *lines,
            ")",
        )
    )


def _line(entry: str, value: str, says: str, *, known: bool = True) -> str:
    return f'    {"" if known else "# "}{entry}="{value}",  # {says}'


def _most_likely(body: nn.Module) -> tuple[str, LayerRoles]:
    """Return the path of the list that most probably holds the layers, and what was found in the first."""
    best: tuple[int, str, LayerRoles] = (0, "", LayerRoles())
    for path, stack in body.named_modules():
        if not path or not isinstance(stack, (nn.ModuleList, nn.Sequential)) or not len(stack):
            continue
        roles = layer_roles(bare(stack[0]), hidden_size(body))
        alike = sum(type(child) is type(stack[0]) for child in stack)
        # Of lists in lists the outer one comes first.
        score = 100 * len(roles.paths()) + alike
        if alike > 1 and score > best[0]:
            best = (score, path, roles)
    return best[1:]
