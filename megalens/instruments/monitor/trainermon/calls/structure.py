"""What modules are given and give, by shape and type, and from where they are called: the contents of ``module_struct.json`` and ``stack_info.csv``."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

__all__ = ["ModuleStacks", "ModuleStructure"]


class ModuleStructure:
    """Looks at the first passes of a model.

    Parameters
    ----------
    chunks : sequence of torch.nn.Module
        The model, or its chunks of a virtual pipeline.
    named : callable
        Takes a module's name and gives the one that is written.

    Attributes
    ----------
    found : dict
        By ``chunk:name``, in the order in which the modules were done.
    """

    def __init__(self, chunks: Sequence[nn.Module], named: Callable[[str], str]) -> None:
        self.found: dict[str, dict[str, Any]] = {}
        self._handles: list[Any] = []
        for chunk, model in enumerate(chunks):
            for name, module in model.named_modules():
                key = f"{chunk}:{named(name)}"
                self._handles += [
                    module.register_forward_hook(self._forward(key), with_kwargs=True),
                    module.register_full_backward_hook(self._backward(key)),
                ]

    def _forward(self, key: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
            given = [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)]
            self.found.setdefault(key, {}).update(input=_about(given), output=_about(output))

        return hook

    def _backward(self, key: str) -> Callable[..., None]:
        def hook(_: nn.Module, given: Any, output: Any) -> None:
            self.found.setdefault(key, {}).update(input_grad=_about(given), output_grad=_about(output))

        return hook

    def close(self) -> None:
        """Take every hook off. Safe twice."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


class ModuleStacks:
    """Notes from where each module is called first.

    Parameters
    ----------
    chunks, named
        As for :class:`ModuleStructure`.

    Attributes
    ----------
    found : dict
        By ``chunk:name``: the innermost call first.
    """

    def __init__(self, chunks: Sequence[nn.Module], named: Callable[[str], str]) -> None:
        self.found: dict[str, str] = {}
        self._handles: list[Any] = [
            module.register_forward_hook(self._hook(f"{chunk}:{named(name)}"))
            for chunk, model in enumerate(chunks)
            for name, module in model.named_modules()
        ]

    def _hook(self, key: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            if key not in self.found:
                self.found[key] = "".join(
                    f"File {at.filename}, line {at.lineno}, in {at.name}, \n {at.line} \n"
                    for at in traceback.extract_stack()[-2::-1]
                )

        return hook

    def close(self) -> None:
        """Take every hook off. Safe twice."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _about(value: Any) -> dict[str, str]:
    if isinstance(value, Tensor):
        return {"config": "tensor", "tensor": _text(value)}
    if isinstance(value, (tuple, list)):
        each = {str(number): _text(inner) for number, inner in enumerate(value)}
        return {"config": f"{'list' if isinstance(value, list) else 'tuple'}[{len(value)}]", **each}
    return {"config": str(type(value))}


def _text(value: Any) -> str:
    return (
        f"size={tuple(value.shape)}, dtype={value.dtype}" if isinstance(value, Tensor) else str(type(value))
    )
