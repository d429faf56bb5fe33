"""Puts this folder on the import path, so that the tests of every room can use its helpers."""
