"""What plain hooks see of a tiny model, by its hand-written layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tests.adapters.model_zoo import LAYERS, Layout

Seen = dict[tuple[str, int, str], list[Tensor]]


@contextmanager
def plain_hooks(model: nn.Module, layout: Layout, eager: bool) -> Iterator[tuple[Seen, Seen]]:
    """Give what is seen of each flag, layer and part, and its gradients, one entry per forward pass."""
    values: Seen = {}
    gradients: Seen = {}
    handles = []
    recomputes = [False]

    def keep(key: tuple[str, int, str], tensor: Tensor, cut: Callable[[Tensor], Tensor]) -> None:
        if not recomputes[0]:
            values.setdefault(key, []).append(cut(tensor.detach()).clone())
        if tensor.requires_grad and torch.is_grad_enabled():
            tensor.register_hook(lambda grad: gradients.setdefault(key, []).append(cut(grad).clone()))

    def look(
        path: str, key: tuple[str, int, str], item: int = 0, cut: Callable[[Tensor], Tensor] = shaped
    ) -> None:
        def after(module: nn.Module, args: object, output: object) -> None:
            keep(key, output[item] if isinstance(output, tuple) else output, cut)  # type: ignore[index, arg-type]

        handles.append(model.get_submodule(path).register_forward_hook(after))

    for number in range(LAYERS):
        layer = f"{layout.stack}.{number}"
        attention = f"{layer}.{layout.attention}"
        look(layer, ("HiddenStates", number, ""))
        look(
            f"{attention}.{layout.whole}" if layout.whole else attention,
            ("AttentionOutput_mat_mul", number, ""),
        )
        if layout.fused is not None and layout.cut is not None:
            for part in layout.cut(
                torch.zeros(
                    2,
                    9,
                    model.get_submodule(f"{attention}.{layout.fused}").weight.shape[
                        1 if "c_" in layout.fused and "GPT2" in type(model).__name__ else 0
                    ],
                )
            ):
                look(
                    f"{attention}.{layout.fused}",
                    ("QKV_mat_mul", number, part),
                    cut=lambda data, part=part: layout.cut(data)[part],
                )
        named = {"q": layout.q, "k": layout.k, "v": layout.v}
        for part, path in named.items():
            if path is not None and (layout.fused is None or (part == "q" and path != "q_proj")):
                look(f"{attention}.{path}", ("QKV_mat_mul", number, part))
        if eager:
            look(attention, ("RawAttentionScore_mat_mul", number, ""), 1, lambda data: data)

        def before(module: nn.Module, args: tuple[Tensor, ...], number: int = number) -> None:
            keep(("ContextLayer_mat_mul", number, ""), args[0], shaped)

        handles.append(model.get_submodule(f"{attention}.{layout.context}").register_forward_pre_hook(before))
        mixture = layout.router is not None and number >= layout.dense
        look(
            f"{layer}.{layout.mlp2.partition('.')[0] if mixture else layout.mlp2}",
            ("MLP2_mat_mul", number, ""),
        )
        for i, (part, path) in enumerate(() if mixture else layout.mlp1.items()):
            both = len(set(layout.mlp1.values())) < len(layout.mlp1)
            look(
                f"{layer}.{path}",
                ("MLP1_mat_mul", number, part),
                cut=(lambda data, i=i: shaped(data).chunk(2, -1)[i]) if both else shaped,
            )

    def ids(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        values.setdefault(("InputTokens", -1, "ids"), []).append(args[0].clone())

    handles.append(model.get_submodule(layout.tokens).register_forward_pre_hook(ids))
    top = [
        model.register_forward_pre_hook(lambda *_: recomputes.__setitem__(0, False)),
        model.register_forward_hook(lambda *_: recomputes.__setitem__(0, True)),
    ]
    try:
        yield values, gradients
    finally:
        for handle in [*handles, *top]:
            handle.remove()


def shaped(data: Tensor) -> Tensor:
    """Two samples of nine positions."""
    return data.reshape(2, 9, -1)
