"""Hubs that are not ours: read as they are, translated into a run of ours; and ours served in their language.
Needs no torch.
"""
