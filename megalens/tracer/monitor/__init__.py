"""The instrument ``monitor``: judges every step where it is measured, and sends what the rules found."""
