"""Creation, list, check and revocation of keys."""

import re
import time
from datetime import datetime, timedelta
from typing import Annotated

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from dlrm.config import FieldError
from service.access.principal import SERVICE, Actor, Principal, Role
from service.access.secret import hash_secret, new_secret
from service.access.visibility import refuse_browser
from service.audit.log import AuditLog
from service.audit.models import AuditAction
from service.database import Database
from service.http.paging import Page
from service.http.problems import conflict, invalid_request, not_found, unauthenticated
from service.http.request_origin import RequestOrigin
from service.ids import is_id, new_id
from service.keys.models import ApiKey
from service.keys.repository import KeyFilter, KeyRepository, SessionRepository
from service.keys.schemas import MAX_KEY_DAYS, CreatedKey, KeyView, NewKey
from service.keys.use_recorder import UseRecorder
from service.parts import depend_on
from service.reasons import PARTS
from service.schemas import Me
from service.times import now

FOUND_SECONDS = 1.0
MAX_FOUND = 1000
FIRST_KEY = "admin"
"""Name and owner of the key that a service makes for itself."""


class KeyService:
    def __init__(self, database: Database, audit: AuditLog, uses: UseRecorder) -> None:
        self._database = database
        self._audit = audit
        self._uses = uses
        self._found: dict[str, tuple[float, ApiKey]] = {}
        """Keys found lately, by hash, each with the monotonic time until which it is not looked up again."""

    def create(
        self,
        name: str,
        role: Role,
        owner: str | None = None,
        expires_at: datetime | None = None,
        actor: Actor = SERVICE,
    ) -> CreatedKey:
        """Create a key. owner: the name of the key where it is None.

        Raises ProblemError if the owner has a key of that name.
        """
        try:
            with self._database.write() as session:
                return self._add(session, name, role, owner or name, expires_at, actor)
        except IntegrityError:
            detail = f"{owner or name} already has a key named {name}; choose another name, or revoke that key first"
            raise conflict(detail) from None

    def create_requested(self, new_key: NewKey, principal: Principal) -> CreatedKey:
        """Create the key of a request.

        Raises ProblemError if its expiry is invalid, its name is taken, its owner is a part of the service, or the
        sender has shown no key.
        """
        key = "an API key of the role admin as `Authorization: Bearer dlrm_…` (`dlrm keys create`)"
        refuse_browser(principal, "make keys", key)
        owner = new_key.owner or new_key.name
        if owner in PARTS:
            fault = FieldError("owner", f"{owner} is a part of the service, which acts under this name", "another name")
            raise invalid_request([fault])
        expires_at = _find_expiry(new_key, now())
        return self.create(new_key.name, new_key.role, new_key.owner, expires_at, principal.actor)

    def ensure_admin(self) -> str | None:
        """Create an admin key if there is none that works, as on the first start, and return its secret; else None.

        Otherwise nobody could manage a service whose last admin key has expired.
        """
        try:
            with self._database.write() as session:
                keys = KeyRepository(session)
                if keys.lock_live_admins(now()):
                    return None
                keys.revoke_expired(FIRST_KEY, FIRST_KEY, now())
                return self._add(session, FIRST_KEY, Role.ADMIN, FIRST_KEY, None, SERVICE).key
        except IntegrityError:
            # Another process of the service was faster.
            return None

    def list_page(
        self, chosen: KeyFilter, principal: Principal, *, cursor: str | None, is_newest_first: bool, limit: int
    ) -> Page[KeyView]:
        """Return one page of the keys that `chosen` selects: of all for an admin, of the same owner's for others.

        cursor: id of the last key of the previous page.
        """
        with self._database.read() as session:
            rows = KeyRepository(session).list_page(
                chosen,
                now(),
                owner=principal.visible_owner,
                after=cursor,
                is_newest_first=is_newest_first,
                limit=limit + 1,
            )
        views = [KeyView.model_validate(key) for key in rows[:limit]]
        return Page(items=views, next_cursor=views[-1].id if len(rows) > limit else None)

    def describe(self, principal: Principal) -> Me:
        """Describe the sender of a request."""
        with self._database.read() as session:
            key = KeyRepository(session).get(principal.key_id)
        expires_at = None if key is None else key.expires_at
        fields = {name: getattr(principal, name) for name in Me.model_fields if name != "expires_at"}
        return Me(**fields, expires_at=expires_at)

    def revoke(self, key_id: str, actor: Actor = SERVICE) -> None:
        """Revoke a key, and remove its sign-in links and browser sessions.

        Raises ProblemError if the key is unknown, revoked, or the last admin key.
        """
        with self._database.write() as session:
            keys = KeyRepository(session)
            admins = keys.lock_live_admins(now())
            key = keys.get(key_id) if is_id(key_id, "key") else None
            if key is None:
                raise not_found("key", key_id)
            if admins == [key_id]:
                raise conflict("this is the last admin key; create another one first")
            if not keys.revoke(key_id, now()):
                raise not_found("key", f"{key_id} that is not revoked")
            SessionRepository(session).remove_by_key(key_id)
            self._record(session, actor, AuditAction.KEY_REVOKED, key)
        self._found.clear()

    def authenticate(self, secret: str, origin: RequestOrigin) -> Principal:
        """Return the principal of a key. Raises ProblemError if it is unknown, expired or revoked."""
        # Other requests with this key may have waited for their turn before this one.
        if (known := self.recall(secret, origin)) is not None:
            return known
        with self._database.read() as session:
            try:
                key = find_key(session, secret)
            except RefusedError as error:
                raise unauthenticated(str(error)) from None
        if len(self._found) >= MAX_FOUND:
            self._found.clear()
        self._found[hash_secret(secret)] = (time.monotonic() + FOUND_SECONDS, key)
        return self._use(key, origin)

    def recall(self, secret: str, origin: RequestOrigin) -> Principal | None:
        """Return the principal of a key that was found within the last second; None if it was not, or has expired.

        Many a client sends many requests. A revoked key may pass for as long.
        """
        until, key = self._found.get(hash_secret(secret), (0.0, None))
        if key is None or time.monotonic() >= until or (key.expires_at is not None and key.expires_at <= now()):
            return None
        return self._use(key, origin)

    def _use(self, key: ApiKey, origin: RequestOrigin) -> Principal:
        self._uses.record(key)
        return Principal(key.id, key.name, key.owner, Role(key.role), origin)

    def _add(
        self, session: Session, name: str, role: Role, owner: str, expires_at: datetime | None, actor: Actor
    ) -> CreatedKey:
        secret = new_secret(KEY_PREFIX)
        key = ApiKey(
            id=new_id("key"),
            name=name,
            owner=owner,
            role=role.value,
            secret_hash=hash_secret(secret),
            created_at=now(),
            expires_at=expires_at,
        )
        KeyRepository(session).add(key)
        self._record(session, actor, AuditAction.KEY_CREATED, key)
        return CreatedKey(**KeyView.model_validate(key).model_dump(), key=secret)

    def _record(self, session: Session, actor: Actor, action: AuditAction, key: ApiKey) -> None:
        self._audit.record(session, actor, action, key.id, name=key.name, owner=key.owner, role=key.role)


Keys = Annotated[KeyService, depend_on(KeyService)]
"""Parameter type of an endpoint that needs the service."""


def find_key(session: Session, secret: str) -> ApiKey:
    """Return the key with this secret. Raises RefusedError if it is unknown, expired or revoked.

    It is looked up by its hash, so that the time taken says nothing about similar keys.
    """
    key = KeyRepository(session).get_by_secret(hash_secret(secret)) if _FORM.fullmatch(secret) else None
    return check_key(key, now())


def _find_expiry(new_key: NewKey, at: datetime) -> datetime | None:
    """Return the time at which a new key expires; None if it never does. Raises ProblemError."""
    latest = at + timedelta(days=MAX_KEY_DAYS)
    expires_at = new_key.expires_at
    if expires_at is None:
        return None if new_key.expires_in_days is None else at + timedelta(days=new_key.expires_in_days)
    if new_key.expires_in_days is not None:
        raise invalid_request([FieldError("expires_at", "expires_in_days is there too", "one of the two")])
    if not at < expires_at <= latest:
        message = f"{expires_at.isoformat()} is in the past or too late"
        raise invalid_request([FieldError("expires_at", message, f"a later time than now, at most {latest:%Y-%m-%d}")])
    return expires_at


KEY_PREFIX = "dlrm_"
_FORM = re.compile(rf"{KEY_PREFIX}[A-Za-z0-9_-]{{43}}")
"""Form of all keys; what has another one is not looked up."""


class RefusedError(Exception):
    """Refusal of a key, a sign-in link or a session; the text is for its holder."""

    def __init__(self, message: str, why: str, key: ApiKey | None = None) -> None:
        """Keep the reason in one word, `why`, and id and owner of the key, empty if none is known."""
        super().__init__(message)
        self.why = why
        self.key_id = key.id if key else ""
        self.owner = key.owner if key else ""


def check_key(key: ApiKey | None, at: datetime) -> ApiKey:
    """Return a key that may be used at this time. Raises RefusedError if it may not."""
    fix = "ask an administrator for another one (`dlrm keys create`)"
    if key is None:
        raise RefusedError(f"unknown API key, perhaps one of another service; {fix}", "unknown")
    if key.revoked_at is not None:
        raise RefusedError(f"this API key was revoked at {key.revoked_at:%Y-%m-%d %H:%M} UTC; {fix}", "revoked", key)
    if key.expires_at is not None and key.expires_at <= at:
        raise RefusedError(f"this API key expired at {key.expires_at:%Y-%m-%d %H:%M} UTC; {fix}", "expired", key)
    return key
