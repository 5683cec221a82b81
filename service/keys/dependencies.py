"""Typed dependencies of endpoints: `Viewer`, `Submitter` and `Admin` are the sender of a request, with that role."""

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request

from service.http.problems import forbidden, unauthenticated
from service.keys.roles import Role
from service.keys.service import Principal
from service.services import Current

SESSION_COOKIE = "dlrm_session"


def current_principal(request: Request, services: Current) -> Principal:
    """Return the principal of the request's API key or browser session.

    Raises ProblemError where there is neither, and where a page of another site sends a change with our cookie.
    """
    token = bearer_token(request)
    if token is not None:
        principal = services.keys.principal_of_key(token)
        if principal is None:
            raise unauthenticated("this API key is not known")
        return principal
    cookie = request.cookies.get(SESSION_COOKIE)
    principal = services.keys.principal_of_session(cookie) if cookie else None
    if principal is None:
        raise unauthenticated("send an API key as `Authorization: Bearer dlrm_…`, or sign in")
    _refuse_foreign_pages(request)
    return principal


def bearer_token(request: Request) -> str | None:
    """Return the token after `Bearer` in the Authorization header; None where there is none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _refuse_foreign_pages(request: Request) -> None:
    # SameSite treats all ports of this host as one site: a page of another program could post with our cookie.
    if request.method not in {"GET", "HEAD"} and request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise forbidden("a signed-in browser changes things from the service's own pages alone")


def _require(role: Role) -> Callable[[Principal], Principal]:
    def check(principal: Annotated[Principal, Depends(current_principal)]) -> Principal:
        if not principal.role.includes(role):
            raise forbidden(f"this needs the role {role}; {principal.name} has {principal.role}")
        return principal

    return check


Viewer = Annotated[Principal, Depends(_require(Role.VIEWER))]
Submitter = Annotated[Principal, Depends(_require(Role.SUBMITTER))]
Admin = Annotated[Principal, Depends(_require(Role.ADMIN))]
