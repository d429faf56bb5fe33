"""The code of README and docs, run as a reader runs it."""
