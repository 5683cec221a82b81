"""What a running rank says: reports into spool files, and their way to a service that listens."""
