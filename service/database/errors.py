"""Errors of a database that the service cannot use. Their messages name DLRM_DATABASE_URL and contain no password."""


class DatabaseUnusableError(Exception):
    """Error raised where the service cannot use its database; the message says what to do."""


class DatabaseUrlError(Exception):
    """Error raised where the URL of the database can be that of none; the message says what would be valid."""


class UnsafePlaceError(DatabaseUnusableError):
    """Error raised where a file is in a place in which SQLite may damage it."""
