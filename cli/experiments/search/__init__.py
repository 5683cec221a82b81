"""Search for better settings of a job: a space around them, and successive halving within a time."""
