"""Measures tensors call by call, as TrainerMon does: nothing is merged over micro-batches, modules' calls or ranks."""

from .collector import CallCollector, CallRows, StackedRows

__all__ = ["CallCollector", "CallRows", "StackedRows"]
