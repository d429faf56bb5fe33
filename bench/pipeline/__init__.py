"""Pipelines: how well plans predict real steps, and what orders by arrival gain. ``python -m bench.pipeline``."""
