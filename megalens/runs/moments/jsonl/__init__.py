"""Raw-moment JSONL files: found, parsed once, kept as Parquet, continued as they grow."""
