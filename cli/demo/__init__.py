"""`make demo`: starts a service of its own, trains a model through it, and prints the results."""
