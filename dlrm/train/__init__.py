"""Training of one rank: the loop, the step, the dense pass, evaluation."""
