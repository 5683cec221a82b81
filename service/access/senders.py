"""Typed dependencies of endpoints: `Viewer`, `Submitter` and `Admin` are the sender of a request, with that role."""

from collections.abc import Awaitable, Callable
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request

from service.access.principal import Principal, Role
from service.http.problems import READ_METHODS, forbidden, unauthenticated


def get_bearer_token(request: Request) -> str | None:
    """Return the token after `Bearer` in the Authorization header; None if absent."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def refuse_foreign_page(request: Request) -> None:
    """Raise ProblemError if a page of another site sends a change."""
    # SameSite treats all ports of a host as one site: a page of another program could send this cookie.
    if request.method in READ_METHODS or _is_own_page(request):
        return
    raise forbidden("a signed-in browser may change something only from the service's own pages")


def _is_own_page(request: Request) -> bool:
    """Whether a page of this service sends the request, or no page at all."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    # A browser that does not send Sec-Fetch-Site sends at least Origin with every change.
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host", "")


def _require(role: Role) -> Callable[[Request], Awaitable[Principal]]:
    async def check(request: Request) -> Principal:
        # The gate has found it, or another kind of sender.
        principal = getattr(request.state, "sender", None)
        if not isinstance(principal, Principal):
            raise unauthenticated("send an API key as `Authorization: Bearer dlrm_…`, or sign in")
        if not principal.role.includes(role):
            raise forbidden(
                f"this requires the role {role}; {principal.name} has the role {principal.role}: use another key "
                "(DLRM_API_KEY), or sign in with one"
            )
        return principal

    return check


Viewer = Annotated[Principal, Depends(_require(Role.VIEWER))]
Submitter = Annotated[Principal, Depends(_require(Role.SUBMITTER))]
Admin = Annotated[Principal, Depends(_require(Role.ADMIN))]
