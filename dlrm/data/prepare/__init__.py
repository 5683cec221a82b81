"""Preparation of raw files: it turns them into a packed directory."""
