"""Tables of files with a log: Delta Lake and Iceberg."""
