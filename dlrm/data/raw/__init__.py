"""Reading of raw files: find them, cut them into blocks, parse and check their rows."""
