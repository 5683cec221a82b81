"""Audit log: who changed what besides the states of jobs."""
