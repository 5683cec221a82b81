"""The plan of a job: what its document and its data say to `sharding.plan`. Imports no torch."""
