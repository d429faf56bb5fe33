"""Traces of other tools: read in, and written out."""
