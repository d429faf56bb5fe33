"""What a run wrote, as a kernel reads it."""
