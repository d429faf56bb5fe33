"""What follows the merging of moments: the explorer's loops over typed arrays beside arquero's verbs."""
