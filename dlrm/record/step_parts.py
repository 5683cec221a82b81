"""The event that tells where the time of a run's steps went."""

STEP_PARTS = "step_parts"
"""Its details: `num_steps`, and `seconds` of one step by part, on rank 0 of the attempt."""
