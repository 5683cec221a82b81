"""The database: engine, transactions, migrations."""

# pyright: reportUnusedImport=false

from service.database.base import Base, UtcDateTime
from service.database.database import Database
