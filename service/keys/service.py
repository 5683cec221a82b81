"""Creation, check and removal of keys; sign-in and sign-out of browsers."""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.exc import IntegrityError

from service.database import Database
from service.http.problems import conflict, not_found, unauthenticated
from service.ids import new_id
from service.keys.models import ApiKey
from service.keys.repository import KeyRepository
from service.keys.roles import Role
from service.keys.schemas import CreatedKey, KeyView
from service.keys.secret import hash_secret, new_secret
from service.times import now

KEY_PREFIX = "dlrm_"
SIGN_IN_LIFETIME = timedelta(minutes=10)
SESSION_LIFETIME = timedelta(days=7)


@dataclass(frozen=True)
class Principal:
    """Identity and role of the sender of a request."""

    key_id: str
    name: str
    """Name of the key."""
    owner: str
    role: Role

    def may_see(self, owner: str) -> bool:
        """Whether the sender may know of the jobs of `owner`."""
        return self.role is Role.ADMIN or self.owner == owner


class KeyService:
    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, name: str, role: Role, owner: str | None = None) -> CreatedKey:
        """Create a key. owner: the name of the key where it is None."""
        with self._database.write() as session:
            return _add_key(KeyRepository(session), name, role, owner or name)

    def create_first_admin_key(self) -> str | None:
        """Create an admin key on the first start and return its secret; None where there are keys already."""
        try:
            with self._database.write() as session:
                keys = KeyRepository(session)
                return _add_key(keys, "admin", Role.ADMIN, "admin").key if keys.is_empty() else None
        except IntegrityError:
            # Another service, which has started at the same time, was faster.
            return None

    def list_all(self) -> list[KeyView]:
        with self._database.read() as session:
            return [KeyView.model_validate(key) for key in KeyRepository(session).list_all()]

    def remove(self, key_id: str) -> None:
        """Remove a key and its browser sessions.

        Raises ProblemError where the key is unknown or is the last admin key.
        """
        with self._database.write() as session:
            keys = KeyRepository(session)
            key = keys.get(key_id)
            if key is None:
                raise not_found("key", key_id)
            if key.role == Role.ADMIN and keys.count_admins() == 1:
                raise conflict("this is the last admin key; create another one first")
            keys.remove(key_id)

    def find_principal_by_key(self, secret: str) -> Principal | None:
        with self._database.read() as session:
            return _make_principal(KeyRepository(session).get_by_secret(hash_secret(secret)))

    def find_principal_by_session(self, token: str) -> Principal | None:
        with self._database.read() as session:
            return _make_principal(KeyRepository(session).get_by_browser_session(hash_secret(token), now()))

    def create_sign_in_token(self) -> str:
        """Create a token that signs one browser in with the oldest admin key, within ten minutes."""
        token = new_secret()
        with self._database.write() as session:
            keys = KeyRepository(session)
            admin = keys.get_first_admin()
            assert admin is not None, "the last admin key cannot be removed"
            keys.remove_expired(now())
            keys.add_sign_in_token(hash_secret(token), admin.id, now() + SIGN_IN_LIFETIME)
        return token

    def sign_in(self, token: str) -> str:
        """Exchange a sign-in token for the token of a new browser session.

        Raises ProblemError where the sign-in token is unknown, used or expired.
        """
        session_token = new_secret()
        with self._database.write() as session:
            keys = KeyRepository(session)
            key_id = keys.use_sign_in_token(hash_secret(token), now())
            if key_id is not None:
                keys.add_browser_session(hash_secret(session_token), key_id, now() + SESSION_LIFETIME)
        if key_id is None:
            raise unauthenticated("this sign-in link is unknown, already used, or older than ten minutes")
        return session_token

    def sign_out(self, session_token: str) -> None:
        with self._database.write() as session:
            KeyRepository(session).remove_browser_session(hash_secret(session_token))


def _add_key(keys: KeyRepository, name: str, role: Role, owner: str) -> CreatedKey:
    secret = new_secret(KEY_PREFIX)
    key = ApiKey(
        id=new_id("key"),
        name=name,
        owner=owner,
        role=role.value,
        secret_hash=hash_secret(secret),
        created_at=now(),
    )
    keys.add(key)
    return CreatedKey(id=key.id, name=name, role=role, created_at=key.created_at, key=secret)


def _make_principal(key: ApiKey | None) -> Principal | None:
    return Principal(key.id, key.name, key.owner, Role(key.role)) if key else None
