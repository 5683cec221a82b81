"""Runs in a bucket: what a run leaves in its directory is copied there behind the training, and fetched from there."""
