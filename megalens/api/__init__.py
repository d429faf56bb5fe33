"""The calls of a training script or a notebook cell, composed of the rooms: the names of ``megalens``."""
