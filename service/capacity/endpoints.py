"""Endpoints under /v1/capacity: the resources of the service, who holds them, and how much was held before."""

from typing import Annotated

from fastapi import APIRouter, Query

from service import schemas
from service.access.senders import Viewer
from service.capacity.history import MAX_HOURS
from service.capacity.known import Capacities
from service.capacity.use import CapacityUse
from service.http.limits import LISTS
from service.http.route import ApiRoute, runs_in
from service.launchers.protocol import Capacity
from service.launchers.registry import AUTO, LauncherName, Launchers
from service.parts import depend_on

router = APIRouter(prefix="/v1", tags=["capacity"], route_class=ApiRoute)


class CapacitiesView(schemas.Capacity, frozen=True):
    """Resources of the launcher of jobs that name none, and the resources of each launcher by name."""

    launcher: str
    """Launcher of jobs that name none."""
    launchers: dict[str, schemas.Capacity]
    """Resources of each launcher, by its name."""


@router.get("/capacity")
def get_capacity(
    capacities: Capacities, launchers: Annotated[Launchers, depend_on(Launchers)], _: Viewer
) -> CapacitiesView:
    """Return cores, memory and GPUs of each launcher, in all and free."""
    known = capacities.read()
    free = capacities.read_free(known)
    views = {
        name: _make_view(capacity.total if capacity is not None else None, free[name])
        for name, capacity in known.items()
    }
    first = launchers.resolve("auto")
    own = views.get(first) or _make_view(None, None)
    return CapacitiesView(launcher=first, launchers=views, **own.model_dump())


@router.get("/capacity/use")
@runs_in(LISTS)
def get_capacity_use(use: CapacityUse, principal: Viewer) -> schemas.CapacityUse:
    """Return who holds the resources: jobs that the sender may know of, their owners, and the sum of all others."""
    return use.describe(principal)


@router.get("/capacity/history")
@runs_in(LISTS)
def get_capacity_history(
    use: CapacityUse,
    launchers: Annotated[Launchers, depend_on(Launchers)],
    _: Viewer,
    hours: Annotated[int, Query(ge=1, le=MAX_HOURS, description="hours until now")] = 24,
    launcher: LauncherName = AUTO,
) -> schemas.CapacityHistory:
    """Return how much of a launcher's resources was in use, and how many jobs waited, of all owners together."""
    return use.read_history(launchers.resolve(launcher), hours)


def _make_view(total: Capacity | None, free: Capacity | None) -> schemas.Capacity:
    return schemas.Capacity(
        num_cores=total and total.num_cores,
        num_cores_free=free and free.num_cores,
        memory_bytes=total and total.memory_bytes,
        memory_bytes_free=free and free.memory_bytes,
        num_gpus=total and total.num_gpus,
        num_gpus_free=free and free.num_gpus,
    )
