"""From rows to merged groups: which tensors take part, their groups, statistics and steps."""
