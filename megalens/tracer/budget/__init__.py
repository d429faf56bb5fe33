"""Keeping what the instruments cost inside a limit, measured on the job itself."""
