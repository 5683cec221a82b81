"""Endpoints under /v1/quotas."""

from typing import Annotated

from fastapi import APIRouter, Path

from service.access.senders import Admin, Viewer
from service.http.paging import Page
from service.http.route import ApiRoute
from service.quotas.schemas import NewQuota, QuotaView
from service.quotas.service import Quotas
from service.store.quotas import OWNER_PATTERN

router = APIRouter(prefix="/v1/quotas", tags=["quotas"], route_class=ApiRoute)

Owner = Annotated[
    str,
    Path(
        pattern=OWNER_PATTERN,
        description="an owner of keys, as `dlrm keys list` shows it, or * for all",
    ),
]


@router.get("")
def list_quotas(quotas: Quotas, principal: Viewer) -> Page[QuotaView]:
    """List the quotas: all of them for an admin, otherwise those that hold for oneself."""
    return Page(items=quotas.list_visible(principal))


@router.put("/{owner}")
def put_quota(owner: Owner, quota: NewQuota, quotas: Quotas, principal: Admin) -> QuotaView:
    """Set what the jobs of an owner may occupy together. Running jobs go on."""
    return quotas.put(owner, quota, principal)


@router.delete("/{owner}", status_code=204)
def remove_quota(owner: Owner, quotas: Quotas, principal: Admin) -> None:
    """Remove the limits of an owner; the limits of `*` hold for it from now on."""
    quotas.remove(owner, principal)
