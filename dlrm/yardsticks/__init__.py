"""Simple models, trained on the rows of a run in seconds, that show how good its model is. Imports no torch."""
