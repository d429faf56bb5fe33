"""The statistics logger: count, mean and central moments of parameters, gradients, activations and the residual stream."""
