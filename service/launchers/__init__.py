"""Launchers, which run the attempts of jobs."""
