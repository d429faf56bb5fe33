"""Spans of time that ranks recorded: read, put on one clock, and written for other viewers."""
