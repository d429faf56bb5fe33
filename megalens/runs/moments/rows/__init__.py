"""Sources of rows of the stream ``moments``, read in chunks of complete steps."""
