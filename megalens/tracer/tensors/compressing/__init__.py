"""What is kept of a tensor: kernels of the compressors, and how much each loses."""
