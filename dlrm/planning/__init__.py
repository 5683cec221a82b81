"""Plans of jobs: requests from their documents and data to `sharding.planner`, and its refusals in their words.

Imports no torch.
"""
