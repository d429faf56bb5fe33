"""Where the rows of the stream ``moments`` lie, and how they are read: in chunks of whole steps."""
