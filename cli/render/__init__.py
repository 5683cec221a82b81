"""Display of jobs, plans and data in the terminal and as a page."""
