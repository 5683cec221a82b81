"""Typed dependencies of endpoints: `Viewer`, `Submitter` and `Admin` are the sender of a request, with that role."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request

from service.http.problems import forbidden, unauthenticated
from service.keys.roles import Role
from service.keys.service import Principal
from service.services import Services

SESSION_COOKIE = "dlrm_session"


def find_principal(request: Request, services: Services) -> Principal:
    """Find the principal of the request's API key or browser session, in the database.

    Raises ProblemError where there is neither, or where a page of another site sends a change with this cookie.
    """
    token = get_bearer_token(request)
    if token is not None:
        principal = services.keys.find_principal_by_key(token)
        if principal is None:
            raise unauthenticated("unknown API key")
        return principal
    cookie = request.cookies.get(SESSION_COOKIE)
    principal = services.keys.find_principal_by_session(cookie) if cookie else None
    if principal is None:
        raise unauthenticated("send an API key as `Authorization: Bearer dlrm_…`, or sign in")
    _refuse_foreign_pages(request)
    return principal


def get_bearer_token(request: Request) -> str | None:
    """Return the token after `Bearer` in the Authorization header; None where there is none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _refuse_foreign_pages(request: Request) -> None:
    # SameSite treats all ports of a host as one site: a page of another program could send this cookie.
    if request.method not in {"GET", "HEAD"} and request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise forbidden("a signed-in browser may change something only from the service's own pages")


async def get_principal(request: Request) -> Principal:
    """Return the principal that the gate has found. Raises ProblemError where it has found none."""
    sender = getattr(request.state, "sender", None)
    if not isinstance(sender, Principal):
        raise unauthenticated("send an API key as `Authorization: Bearer dlrm_…`, or sign in")
    return sender


def _require(role: Role) -> Callable[[Principal], Awaitable[Principal]]:
    async def check(principal: Annotated[Principal, Depends(get_principal)]) -> Principal:
        if not principal.role.includes(role):
            raise forbidden(f"this requires the role {role}; {principal.name} has the role {principal.role}")
        return principal

    return check


Viewer = Annotated[Principal, Depends(_require(Role.VIEWER))]
Submitter = Annotated[Principal, Depends(_require(Role.SUBMITTER))]
Admin = Annotated[Principal, Depends(_require(Role.ADMIN))]
