"""The kernel for GPUs, in Triton, which torch's GPU builds bring along."""
