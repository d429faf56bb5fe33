"""From rows to merged groups: which tensors take part, which group each is in, what is read of it, and which steps a picture needs."""
