"""The plan of a job: what its document and its data say to `sharding.planner`. Imports no torch."""
