"""The process that reads files for the Jupyter server, and what the server asks it."""
