"""Reports of running jobs, each stored once, and their logs."""
