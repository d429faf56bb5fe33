"""Verdicts and clocks of the timeline, measured on simulated jobs whose truth is known."""
