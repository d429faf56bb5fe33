"""The instrument of the stream ``tensors``: hooks at named points, and compression where the tensor is."""
