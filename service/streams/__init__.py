"""Server-sent events: what happens to one job, and to the jobs of the list."""
