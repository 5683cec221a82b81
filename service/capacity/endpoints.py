"""Endpoint /v1/capacity."""

from fastapi import APIRouter
from pydantic import BaseModel

from service.capacity.free import compute_free_capacity
from service.http.route import ApiRoute
from service.keys.dependencies import Viewer
from service.services import ServicesDependency

router = APIRouter(prefix="/v1", tags=["capacity"], route_class=ApiRoute)


class CapacityView(BaseModel):
    """Resources of the machine, and the part of them that no job occupies."""

    num_cores: int
    num_cores_free: int
    memory_bytes: int
    memory_bytes_free: int
    num_gpus: int
    num_gpus_free: int


@router.get("/capacity")
def get_capacity(services: ServicesDependency, _: Viewer) -> CapacityView:
    total = services.capacity.read()
    free = compute_free_capacity(services.database, total)
    return CapacityView(
        num_cores=total.num_cores,
        num_cores_free=free.num_cores,
        memory_bytes=total.memory_bytes,
        memory_bytes_free=free.memory_bytes,
        num_gpus=total.num_gpus,
        num_gpus_free=free.num_gpus,
    )
