"""Reports on data that has a schema: shares, counts, warnings, and the check of a job's files."""
