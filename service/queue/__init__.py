"""The queue: which job starts next, and what the others wait for."""
