"""Measures the inputs and outputs of collectives that the training calls by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from ...collectives import CollectiveHooks, Done, tensors_of
from .. import measure
from .values import local_values, measurable

# By function: positions and names of the tensors, or lists of them, that it reads and that it writes.
_TENSOR = ((0, "tensor"),)
_OPERATIONS: Mapping[str, tuple[tuple[tuple[int, str], ...], tuple[tuple[int, str], ...]]] = {
    "all_reduce": (_TENSOR, _TENSOR),
    "broadcast": (_TENSOR, _TENSOR),
    "reduce": (_TENSOR, _TENSOR),
    "all_gather": (((1, "tensor"),), ((0, "tensor_list"),)),
    "all_gather_into_tensor": (((1, "input_tensor"),), ((0, "output_tensor"),)),
    "reduce_scatter": (((1, "input_list"),), ((0, "output"),)),
    "reduce_scatter_tensor": (((1, "input"),), ((0, "output"),)),
    "all_to_all_single": (((1, "input"),), ((0, "output"),)),
    "gather": (_TENSOR, ((1, "gather_list"),)),
    "scatter": (((1, "scatter_list"),), _TENSOR),
    "send": (_TENSOR, ()),
    "recv": ((), _TENSOR),
    "isend": (_TENSOR, ()),
    "irecv": ((), _TENSOR),
    "batch_isend_irecv": (((0, "p2p_op_list"),), ((0, "p2p_op_list"),)),
}


class Communication:
    """Wraps the functions of ``torch.distributed`` while a step is measured.

    ``keep`` takes a name, such as ``all_reduce/input0``, and rows float64 ``[n, 11]`` on the device.
    ``spent`` calls a function so that neither its time nor an error of its own is the training's.
    """

    def __init__(
        self, keep: Callable[[str, Tensor], None], spent: Callable[[Callable[[], None]], None]
    ) -> None:
        self._keep, self._spent = keep, spent
        self._hooks = CollectiveHooks(self._called, tuple(_OPERATIONS))

    def begin(self) -> None:
        self._hooks.begin()

    def end(self) -> None:
        """Restore the functions. Safe twice."""
        self._hooks.end()

    def _called(self, operation: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Done:
        given, made = _OPERATIONS[operation]

        def look(end: str) -> None:
            for at, keyword in given if end == "input0" else made:
                found = args[at] if len(args) > at else kwargs.get(keyword)
                for tensor in tensors_of(found, sent=end == "input0", received=end == "output0"):
                    values = local_values(tensor) if measurable(tensor) else None
                    if values is not None:
                        self._keep(f"{operation}/{end}", measure([values]))

        self._spent(lambda: look("input0"))
        return lambda _: self._spent(lambda: look("output0"))
