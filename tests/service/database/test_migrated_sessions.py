"""Keys, sign-in links and sessions of revision 0002, after the upgrade to 0003 and back."""

from service.database import Database
from service.database.migrate import migrate
from tests.service.database.test_revision_0002 import TIME, insert, migrate_to, select_rows

TABLES = ("sign_in_tokens", "browser_sessions")


def test_links_and_sessions_keep_the_role_and_owner_of_their_key(database: Database) -> None:
    migrate_to(database, "0002")
    for number, role in ((1, "viewer"), (2, "admin")):
        insert(
            database,
            "api_keys",
            id=f"key_{number}",
            name=role,
            role=role,
            secret_hash=f"hash-{number}",
            created_at=TIME,
        )
        for table in TABLES:
            insert(database, table, token_hash=f"token-{number}", key_id=f"key_{number}", expires_at=TIME)
    migrate(database)
    for table in TABLES:
        rows = select_rows(database, f"SELECT token_hash, owner, role FROM {table} ORDER BY token_hash")
        assert rows == [("token-1", "viewer", "viewer"), ("token-2", "admin", "admin")]
    migrate_to(database, "0002")
    for table in TABLES:
        assert select_rows(database, f"SELECT token_hash, key_id FROM {table} ORDER BY token_hash") == [
            ("token-1", "key_1"),
            ("token-2", "key_2"),
        ]
