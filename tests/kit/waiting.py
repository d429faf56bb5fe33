"""Waiting for what another thread or process brings about."""

import time


def until(test, what="it did not come about in time", seconds=60.0):
    """Poll until a test holds, and return what it gave; ``what`` is said where it never does."""
    end = time.monotonic() + seconds
    while not (found := test()):
        assert time.monotonic() < end, what
        time.sleep(0.01)
    return found
