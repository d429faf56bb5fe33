"""What each rank did when: spans of phases, layers, operations, collectives and messages."""
