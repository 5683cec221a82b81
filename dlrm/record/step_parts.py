"""The events that tell how long a step was expected to take and where its time went, and what its parts are."""

PLAN = "plan"
"""Its details: where tables lie, what ranks hold, and `step_seconds`: what a step was expected to take, by part."""
STEP_PARTS = "step_parts"
"""Its details: `num_steps`, and `seconds` of one step by part, on rank 0 of the attempt."""

PART_WORDS = {
    "lookup": "ids to the owners of their rows, rows read and pooled, pooled embeddings back",
    "dense": "dense part, forward and backward",
    "give_back": "gradients of pooled embeddings to where the owners of rows read them",
    "agree": "wait until every rank is as far, and hear whether the step is sound on all",
    "table_update": "rows of the tables and their optimizer's state; gradients of copies, summed over ranks",
    "wait_for_sum": "the sum of dense gradients over ranks, begun before the tables' update, and the wait for it",
    "optimizer": "moments of the gradient, and the step of the dense parameters",
}
"""What each part of a step is, for people, in the order of a step."""
