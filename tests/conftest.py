"""Puts this folder on the import path, so that the tests of every room can use its helpers."""

import hypothesis

# How long one example takes says something of the machine, not of the code.
hypothesis.settings.register_profile("megalens", deadline=None)
hypothesis.settings.load_profile("megalens")
