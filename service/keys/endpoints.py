"""Endpoints under /v1/keys and /v1/session."""

from typing import Annotated, Literal

from fastapi import APIRouter, Cookie, Query, Request, Response

from service.access.principal import Role
from service.access.senders import Admin, Viewer, refuse_foreign_page
from service.http.gate import SESSION_COOKIE, WAIT_SECONDS
from service.http.limits import SIGN_INS
from service.http.paging import Cursor, Page, parse_id_cursor
from service.http.problem_kinds import may_answer
from service.http.query import STORABLE
from service.http.request_origin import OriginDependency
from service.http.route import ApiRoute, runs_in
from service.ids import is_id
from service.keys.models import KeyState
from service.keys.repository import KeyFilter
from service.keys.schemas import CreatedKey, CreatedLink, KeyView, NewKey, NewLink, SignIn
from service.keys.service import Keys
from service.keys.sessions import Sessions
from service.schemas import Me

router = APIRouter(prefix="/v1", tags=["keys"], route_class=ApiRoute)

SessionCookie = Annotated[str | None, Cookie(alias=SESSION_COOKIE)]


@router.get("/keys")
def list_keys(
    keys: Keys,
    principal: Viewer,
    q: Annotated[
        str | None,
        Query(min_length=1, max_length=63, pattern=STORABLE, description="part of the name or the owner"),
    ] = None,
    role: Role | None = None,
    state: KeyState | None = None,
    key_id: Annotated[
        list[str] | None, Query(alias="id", max_length=100, description="ids of keys; may be repeated")
    ] = None,
    order: Annotated[Literal["oldest", "newest"], Query(description="keys that come first")] = "oldest",
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Page[KeyView]:
    """List the keys without their secrets: all for an admin, else the keys of the same owner."""
    ids = None if key_id is None else tuple(each for each in key_id if is_id(each, "key"))
    return keys.list_page(
        KeyFilter(q, role, state, ids),
        principal,
        cursor=parse_id_cursor(cursor, "key"),
        is_newest_first=order == "newest",
        limit=limit,
    )


@router.get("/me")
def get_me(keys: Keys, principal: Viewer) -> Me:
    """Return the sender of this request: its key, owner and role."""
    return keys.describe(principal)


@router.post("/keys", status_code=201)
@may_answer("conflict")
def create_key(new_key: NewKey, keys: Keys, principal: Admin) -> CreatedKey:
    """Create a key, and return its secret, which is shown only this once."""
    return keys.create_requested(new_key, principal)


@router.delete("/keys/{key_id}", status_code=204)
@may_answer("conflict")
def revoke_key(key_id: str, keys: Keys, principal: Admin) -> None:
    """Revoke a key: it is refused from now on, and its browser sessions and links end."""
    keys.revoke(key_id, principal.actor)


@router.post("/session", status_code=204)
@may_answer("unauthenticated")
@runs_in(SIGN_INS)
def sign_in(
    credentials: SignIn,
    sessions: Sessions,
    origin: OriginDependency,
    request: Request,
    response: Response,
    token: SessionCookie = None,
) -> None:
    """Open a browser session with an API key or the token of a link; the answer sets its cookie."""
    refuse_foreign_page(request)
    # A session that somebody else may have put into this browser ends here.
    opened = sessions.sign_in(credentials, token, origin, getattr(request.state, WAIT_SECONDS))
    response.set_cookie(
        SESSION_COOKIE,
        opened.token,
        max_age=int(opened.lifetime.total_seconds()),
        httponly=True,
        samesite="strict",
        secure=_is_encrypted(request),
    )


@router.delete("/session", status_code=204)
def sign_out(
    sessions: Sessions,
    origin: OriginDependency,
    request: Request,
    response: Response,
    token: SessionCookie = None,
) -> None:
    """End the browser session of the cookie."""
    refuse_foreign_page(request)
    if token:
        sessions.sign_out(token, origin)
    response.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict", secure=_is_encrypted(request))


@router.post("/session/links", status_code=201)
def create_link(new_link: NewLink, sessions: Sessions, principal: Viewer) -> CreatedLink:
    """Create a link that signs one browser in, once, with the sender's role or a lower one."""
    return sessions.create_link(new_link, principal)


def _is_encrypted(request: Request) -> bool:
    """Whether the browser reaches the service over https."""
    # Behind a proxy only the browser knows, and says it in Origin.
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")
