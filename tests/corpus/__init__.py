"""Whole training scripts, each run without and with Megalens, and judged by what plain hooks see inside."""
