"""Where the figures of a step come from: hooks on modules, parameters and their gradients."""
