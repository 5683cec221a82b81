"""The database: engine, transactions, migrations."""

from service.database.base import Base, UtcDateTime
from service.database.database import Database

__all__ = ["Base", "Database", "UtcDateTime"]
