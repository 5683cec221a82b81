"""Raw files: found, cut into blocks, parsed and checked."""
