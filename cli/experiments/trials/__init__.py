"""Trials: how one is trained, what its line of results holds, and means over seeds."""
