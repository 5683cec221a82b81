"""Attacks on a running service: the answer, the memory and the delay that each causes."""
