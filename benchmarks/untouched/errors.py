"""Errors that end the measurement of one set, and of no other."""


class UnavailableError(Exception):
    """Rows of a set that cannot be had on this machine, with a sentence on how to get them."""


class FailedError(Exception):
    """A command of the product that ended with an error, with the end of its output."""
