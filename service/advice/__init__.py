"""Advice on what to change in a job: rules over what is known of its run, its plan and the queue."""
