"""Processes of one run, and how they talk: process groups, votes, all-reduces, shared memory."""
