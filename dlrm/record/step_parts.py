"""The events with the expected time of a step and its measured time, and a description of the parts of a step."""

PLAN = "plan"
"""Event with the sharding plan. Details: the ranks of each table, bytes by rank, and `step_seconds`, the expected
seconds of a step by part."""
STEP_PARTS = "step_parts"
"""Event with measured times. Details: `num_steps`, and `seconds`, those of one step by part, on rank 0 of the
attempt."""

WAIT_FOR_ROWS = "wait_for_rows"

PART_DESCRIPTIONS = {
    WAIT_FOR_ROWS: "wait for the rows of a batch to be read or generated, before its ids are sent",
    "lookup": "ids sent to the owners of their rows, rows read and pooled, pooled embeddings sent back",
    "dense": "dense part, forward and backward",
    "give_back": "gradients of pooled embeddings handed to the owners of the rows",
    "agree": "wait for the slowest rank, and the vote on whether the step is finite on all ranks",
    "table_update": "update of the tables' rows and optimizer state; gradients of copies, summed over ranks",
    "wait_for_sum": "all-reduce of the dense gradients, started before the tables' update, and the wait for it",
    "optimizer": "moments of the gradient, the update of the dense parameters, and the average of all weights",
}
"""Description of each part of a step for users, in the order of a step."""
