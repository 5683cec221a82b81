"""Simple models, trained on the rows of a run in seconds, that tell how good its model is. Imports no torch."""
