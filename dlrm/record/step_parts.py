"""The events with the expected time of a step and its measured time, and a description of the parts of a step."""

PLAN = "plan"
"""Event with the sharding plan. Details: the ranks of each table, bytes by rank, and `step_seconds`, the expected
seconds of a step by part."""
STEP_PARTS = "step_parts"
"""Event with measured times. Details: `num_steps`, and `seconds`, those of one step by part, on rank 0 of the
attempt."""

PART_WORDS = {
    "lookup": "ids to the owners of their rows, rows read and pooled, pooled embeddings back",
    "dense": "dense part, forward and backward",
    "give_back": "gradients of pooled embeddings to where the owners of rows read them",
    "agree": "wait until every rank is as far, and hear whether the step is sound on all",
    "table_update": "rows of the tables and their optimizer's state; gradients of copies, summed over ranks",
    "wait_for_sum": "the sum of dense gradients over ranks, begun before the tables' update, and the wait for it",
    "optimizer": "moments of the gradient, and the step of the dense parameters",
}
"""Description of each part of a step for users, in the order of a step."""
