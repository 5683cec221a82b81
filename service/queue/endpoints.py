"""Endpoint of the queue."""

from typing import Annotated

from fastapi import APIRouter, Query

from service import schemas
from service.access.senders import Viewer
from service.http.limits import LISTS
from service.http.route import ApiRoute, runs_in
from service.launchers.registry import AUTO, LauncherName, Launchers
from service.parts import depend_on
from service.queue.service import Queue

router = APIRouter(prefix="/v1/queue", tags=["capacity"], route_class=ApiRoute)


@router.get("")
@runs_in(LISTS)
def get_queue(
    queue: Queue,
    launchers: Annotated[Launchers, depend_on(Launchers)],
    principal: Viewer,
    launcher: LauncherName = AUTO,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> schemas.Queue:
    """Return the jobs that wait for resources of a launcher, in the order of its queue."""
    return queue.describe(launchers.resolve(launcher), principal, limit)
