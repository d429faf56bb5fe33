"""Raw-moment JSONL files: found, parsed once, cached as Parquet, continued as they grow."""
