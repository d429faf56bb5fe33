"""Tensors that are cut over tensor-parallel ranks become one again."""
