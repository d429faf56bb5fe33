"""Shared by trainings in stages: messages between processes, and batches cut into micro-batches."""
