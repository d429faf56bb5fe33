"""The instrument that traces tensors: hooks at named points, compression where the tensor is, rows of the
stream ``tensors``.
"""
