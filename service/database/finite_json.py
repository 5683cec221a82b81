"""Removal of NaN and Infinity from JSON of versions before 0008: the functions of SQLite refuse such numbers."""

import json

from sqlalchemy import Connection, text

from service.database.storable import dump_json


def remove_non_finite(connection: Connection, table: str, *columns: str) -> None:
    """Write null for the numbers that are not finite in columns of JSON. PostgreSQL has never taken such a number."""
    if connection.dialect.name != "sqlite":
        return
    driver_connection = connection.connection.driver_connection
    assert driver_connection is not None
    driver_connection.create_function("make_finite", 1, _make_finite, deterministic=True)
    for column in columns:
        # Older SQLites take NULL for invalid.
        condition = f"{column} IS NOT NULL AND NOT json_valid({column})"
        connection.execute(text(f"UPDATE {table} SET {column} = make_finite({column}) WHERE {condition}"))


def _make_finite(document: str) -> str:
    try:
        return dump_json(json.loads(document))
    except ValueError:
        return document  # What is no JSON at all stays as it is.
