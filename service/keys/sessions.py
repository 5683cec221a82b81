"""Sign-in links, and browser sessions from sign-in to sign-out."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from sqlalchemy.orm import Session

from dlrm.config import FieldError
from service.access.principal import SERVICE, Actor, Principal, Role
from service.access.secret import hash_secret, new_secret
from service.audit.log import AuditLog
from service.audit.models import AuditAction
from service.database import Database
from service.http.gate import WRONG_CREDENTIALS
from service.http.problems import forbidden, invalid_request, refuse_early, unauthenticated
from service.http.request_origin import RequestOrigin
from service.keys.models import ApiKey, BrowserSession, SignInToken
from service.keys.repository import KeyRepository, SessionRepository
from service.keys.schemas import CreatedLink, NewLink, SignIn
from service.keys.service import RefusedError, check_key, find_key
from service.keys.use_recorder import UseRecorder
from service.parts import depend_on
from service.times import now

START_LINK_LIFETIME = timedelta(minutes=10)
SESSION_LIFETIME = timedelta(days=7)
"""Longest time until a session ends; it ends with its key if that is sooner."""


@dataclass(frozen=True)
class OpenedSession:
    """A browser session just opened: its token, and the time until it ends."""

    token: str
    lifetime: timedelta


@dataclass(frozen=True)
class _Grant:
    """Right to open a session with a key, for an owner and a role."""

    key: ApiKey
    owner: str
    role: Role

    def make_principal(self, origin: RequestOrigin) -> Principal:
        name = self.key.name if self.owner == self.key.owner else self.owner
        return Principal(self.key.id, name, self.owner, self.role, origin, is_browser=True)


class SessionService:
    def __init__(self, database: Database, audit: AuditLog, uses: UseRecorder) -> None:
        self._database = database
        self._audit = audit
        self._uses = uses

    def create_start_link(self) -> str:
        """Create the token of the link that the service prints at its start, with the oldest admin key."""
        with self._database.write() as session:
            admin = KeyRepository(session).get_first_live_admin(now())
            assert admin is not None, "a service makes an admin key before this"
            grant = _Grant(admin, admin.owner, Role.ADMIN)
            return self._add_link(session, grant, START_LINK_LIFETIME, SERVICE).token

    def create_link(self, new_link: NewLink, principal: Principal) -> CreatedLink:
        """Create a sign-in link, which works once.

        Raises ProblemError if the sender has no key, a lower role, or, unless it is an admin, another owner.
        """
        owner, role = new_link.owner or principal.owner, new_link.role or principal.role
        if principal.is_browser:
            # A session could otherwise prolong itself for ever.
            raise forbidden("a signed-in browser cannot make sign-in links; use an API key (`dlrm login-link`)")
        if not principal.role.includes(role):
            raise forbidden(
                f"a link for the role {role} requires a key of that role; {principal.name} has the role "
                f"{principal.role}"
            )
        if not principal.may_see(owner):
            raise forbidden(f"a link for another owner than {principal.owner} requires a key of the role admin")
        with self._database.write() as session:
            grant = _Grant(session.get_one(ApiKey, principal.key_id), owner, role)
            return self._add_link(session, grant, timedelta(minutes=new_link.minutes), principal.actor)

    def sign_in(
        self, credentials: SignIn, old_token: str | None, origin: RequestOrigin, wait_seconds: float
    ) -> OpenedSession:
        """Open a browser session with the owner and role of a key or of a sign-in link; a link is used up.

        old_token: session that the browser has had until now; it ends. wait_seconds: time for which the address of the
        browser may send no more wrong credentials; they are then not recorded. Raises ProblemError if key or link are
        refused.
        """
        method = "key" if credentials.key is not None else "link"
        try:
            with self._database.read() as session:
                # Whoever guesses makes no other writer wait.
                _check(session, credentials)
            with self._database.write() as session:
                grant = _redeem(session, credentials)
                opened = _open_session(session, grant, old_token)
                actor = grant.make_principal(origin).actor
                self._audit.record(session, actor, AuditAction.SIGNED_IN, grant.key.id, method=method, role=grant.role)
        except RefusedError as error:
            refuse_early(wait_seconds, WRONG_CREDENTIALS)
            with self._database.write() as session:
                actor, action = Actor(error.owner, error.key_id or None, origin), AuditAction.SIGN_IN_FAILED
                self._audit.record(session, actor, action, error.key_id, method=method, why=error.why)
            raise unauthenticated(str(error)) from None
        self._uses.record(grant.key)
        return opened

    def sign_out(self, token: str, origin: RequestOrigin) -> None:
        """End a browser session; do nothing if it has ended."""
        with self._database.write() as session:
            ended = SessionRepository(session).remove(hash_secret(token))
            if ended is not None:
                actor = Actor(ended.owner, ended.key_id, origin)
                self._audit.record(session, actor, AuditAction.SIGNED_OUT, ended.key_id, role=ended.role)

    def authenticate(self, token: str, origin: RequestOrigin) -> Principal | None:
        """Return the principal of a browser session; None if it is unknown or has ended.

        Raises ProblemError if its key is expired or revoked.
        """
        with self._database.read() as session:
            found = SessionRepository(session).get(hash_secret(token), now())
        if found is None:
            return None
        try:
            check_key(found.key, now())
        except RefusedError as error:
            raise unauthenticated(f"the session has ended: {error}") from None
        self._uses.record(found.key)
        return _Grant(found.key, found.owner, Role(found.role)).make_principal(origin)

    def _add_link(self, session: Session, grant: _Grant, lifetime: timedelta, actor: Actor) -> CreatedLink:
        token, expires_at = new_secret(), now() + lifetime
        sessions = SessionRepository(session)
        sessions.remove_expired(now())
        sessions.add(
            SignInToken(
                token_hash=hash_secret(token),
                key_id=grant.key.id,
                owner=grant.owner,
                role=grant.role.value,
                expires_at=expires_at,
            )
        )
        details = {"role": grant.role.value, "expires_at": expires_at.isoformat()}
        self._audit.record(session, actor, AuditAction.LINK_CREATED, grant.owner, **details)
        return CreatedLink(token=token, owner=grant.owner, role=grant.role, expires_at=expires_at)


Sessions = Annotated[SessionService, depend_on(SessionService)]
"""Parameter type of an endpoint that needs the service."""


def _check(session: Session, credentials: SignIn) -> None:
    """Raise RefusedError if a key or a link is wrong, and ProblemError if there is not one of the two."""
    if credentials.key is not None and credentials.token is None:
        find_key(session, credentials.key)
    elif credentials.token is None or credentials.key is not None:
        raise invalid_request([FieldError("key", "either a key or the token of a link signs in", "one of the two")])
    elif SessionRepository(session).get_token(hash_secret(credentials.token)) is None:
        raise _refuse_link()


def _refuse_link() -> RefusedError:
    message = "this sign-in link is unknown, already used or expired; `dlrm login-link` makes another one"
    return RefusedError(message, "unknown")


def _redeem(session: Session, credentials: SignIn) -> _Grant:
    """Return the right that a key or a checked link gives. Raises RefusedError if it gives none."""
    if credentials.key is not None:
        key = find_key(session, credentials.key)
        return _Grant(key, key.owner, Role(key.role))
    link = SessionRepository(session).use_token(hash_secret(credentials.token or ""), now())
    if link is None:
        raise _refuse_link()
    return _Grant(check_key(KeyRepository(session).get(link.key_id), now()), link.owner, Role(link.role))


def _open_session(session: Session, grant: _Grant, old_token: str | None) -> OpenedSession:
    token, at = new_secret(), now()
    sessions = SessionRepository(session)
    sessions.remove_expired(at)
    if old_token is not None:
        sessions.remove(hash_secret(old_token))
    expires_at = min(filter(None, (at + SESSION_LIFETIME, grant.key.expires_at)))
    sessions.add(
        BrowserSession(
            token_hash=hash_secret(token),
            key_id=grant.key.id,
            owner=grant.owner,
            role=grant.role.value,
            expires_at=expires_at,
        )
    )
    return OpenedSession(token, expires_at - at)
