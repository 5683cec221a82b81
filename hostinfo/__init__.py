"""Facts of the machine and of processes that service, trainer and planner all need. Imports no torch."""
