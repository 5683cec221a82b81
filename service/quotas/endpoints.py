"""Endpoints under /v1/quotas."""

from typing import Annotated

from fastapi import APIRouter, Path

from service.http.route import ApiRoute
from service.keys.dependencies import Admin, Viewer
from service.quotas.schemas import NewQuota, QuotaList, QuotaView
from service.services import ServicesDependency

router = APIRouter(prefix="/v1/quotas", tags=["quotas"], route_class=ApiRoute)

Owner = Annotated[
    str,
    Path(
        pattern=r"^(\*|[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)$",
        description="an owner of keys, as `dlrm keys list` shows it, or * for all",
    ),
]


@router.get("")
def list_quotas(services: ServicesDependency, principal: Viewer) -> QuotaList:
    """List the quotas: all of them for an admin, otherwise those that hold for oneself."""
    return QuotaList(items=services.quotas.list_visible(principal))


@router.put("/{owner}")
def put_quota(owner: Owner, quota: NewQuota, services: ServicesDependency, principal: Admin) -> QuotaView:
    """Set what the jobs of an owner may occupy together. Running jobs go on."""
    return services.quotas.put(owner, quota, principal)


@router.delete("/{owner}", status_code=204)
def remove_quota(owner: Owner, services: ServicesDependency, principal: Admin) -> None:
    services.quotas.remove(owner, principal)
