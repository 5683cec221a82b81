"""Trials, the runs that tuning and sweeps compare: how one is trained, which go on to longer runs, means over seeds."""
