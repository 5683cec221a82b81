"""Endpoints that stream what happens, as server-sent events."""

import re
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.responses import Response, StreamingResponse

from dlrm.config import FieldError
from service.access.senders import Viewer
from service.authentication import identify
from service.http.gate import AUTHENTICATION
from service.http.paging import MAX_SERIAL
from service.http.problems import invalid_request
from service.http.query import LabelFilter, parse_label
from service.http.route import ApiRoute
from service.parts import depend_on
from service.store.states import JobState
from service.streams.construction import Streams
from service.streams.feed import STREAMS, Place
from service.streams.messages import Check, stream_job, stream_list
from service.streams.reader import ChangeReader
from service.streams.watchers import ListFilter

router = APIRouter(prefix="/v1", tags=["streams"], route_class=ApiRoute)

MEDIA_TYPE = "text/event-stream"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Headers of a stream: nobody keeps it, and nginx does not collect it before it sends it on."""
_PLACE = re.compile(r"([0-9a-f]{12})-([0-9]{1,18})")
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events, see docs/api.md#streams",
        "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
    }
}


StreamsDependency = Annotated[Streams, depend_on(Streams)]


def _find_last_id(
    header: Annotated[str | None, Header(alias="Last-Event-ID", max_length=64)] = None,
    last_event_id: Annotated[
        str | None, Query(max_length=64, description="for the first request of a client that cannot set headers")
    ] = None,
) -> str | None:
    """Return the id of the last message that the client has seen; the header, with which clients come back, counts."""
    return header or last_event_id


LastId = Annotated[str | None, Depends(_find_last_id)]


@router.get("/jobs/{job_id}/stream", response_class=StreamingResponse, responses=_RESPONSES)
async def stream_one_job(
    job_id: str,
    request: Request,
    streams: StreamsDependency,
    principal: Viewer,
    last_id: LastId = None,
    events: Annotated[bool, Query(description="whether there are messages of events, too")] = True,
) -> Response:
    """Stream the events of a job, the fields of it that change, and that its curves and log go on, until its end."""
    job = await STREAMS.run(streams.reader.get_job, job_id, principal)
    await streams.feed.start()
    after = 0 if last_id is None else await _parse_event_id(last_id, streams.reader)
    chosen = after if events else None
    return _answer(request, stream_job(streams.feed, streams.reader, job, principal, chosen, _make_check(request)))


@router.get("/stream", response_class=StreamingResponse, responses=_RESPONSES)
async def stream_jobs(
    request: Request,
    streams: StreamsDependency,
    principal: Viewer,
    last_id: LastId = None,
    state: Annotated[list[JobState] | None, Query(description="may be repeated; one must match")] = None,
    label: LabelFilter = None,
    owner: Annotated[str | None, Query(max_length=63)] = None,
) -> Response:
    """Stream the jobs of a list as they change."""
    chosen = ListFilter(
        states=frozenset(each.value for each in state or ()),
        owner=owner,
        labels=tuple(parse_label(text) for text in label or ()),
        visible_owner=principal.visible_owner,
    )
    place = _parse_place(last_id)
    await streams.feed.start()
    return _answer(request, stream_list(streams.feed, streams.reader, chosen, place, _make_check(request)))


def _answer(request: Request, messages: Any) -> Response:
    if request.scope.get("is_head"):
        return Response(headers=HEADERS, media_type=MEDIA_TYPE)
    return StreamingResponse(messages, headers=HEADERS, media_type=MEDIA_TYPE)


def _make_check(request: Request) -> Check:
    """Make the check of whether the key or session of a request is still valid."""
    sender_id: str = request.state.sender_id

    async def check() -> None:
        await AUTHENTICATION.run(sender_id, identify, request)

    return check


async def _parse_event_id(text: str, reader: ChangeReader) -> int:
    """Parse the id of an event, or 0, before all. Raises ProblemError (422) if it is none."""
    is_serial = text.isascii() and text.isdigit() and int(text) <= MAX_SERIAL
    if not is_serial or int(text) > await STREAMS.run(reader.find_newest_event):
        raise invalid_request([_make_fault(text, "the id of an event of the job")])
    return int(text)


def _parse_place(text: str | None) -> Place | None:
    if text is None:
        return None
    match = _PLACE.fullmatch(text)
    if match is None:
        raise invalid_request([_make_fault(text, "the id of a message of an earlier stream")])
    return Place(match[1], int(match[2]))


def _make_fault(text: str, valid: str) -> FieldError:
    return FieldError("last_event_id", f"{text!r} is not known", valid)
