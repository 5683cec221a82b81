"""Endpoints of the artifacts and the logs of a job."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from service.access.senders import Viewer
from service.files.artifact_service import Artifacts
from service.files.log_service import Logs, Search
from service.http.answers import need_slot
from service.http.downloads import DOWNLOAD, send_content
from service.http.limits import FILES, LOGS
from service.http.paging import MAX_SERIAL
from service.http.problem_kinds import may_answer
from service.http.query import MAX_INT32, Rank
from service.http.route import ApiRoute, runs_in
from service.launchers.protocol import LogName, LogRange
from service.schemas import Artifact, LogMatches, LogPart, Page

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["files"], route_class=ApiRoute)

DownloadSlot = need_slot("slots for downloads", total=100, share=20)
"""Dependency of an endpoint whose answer takes half a megabyte of memory, and a slow client hours."""
LogSlot = need_slot("slots for logs", total=8, share=4)
"""Dependency of endpoints whose answers may take a megabyte each."""
AttemptNumber = Annotated[
    int | None, Query(ge=1, le=MAX_INT32, description="number of the attempt; the last one if omitted")
]
LogSource = Annotated[
    Rank | Literal["launch"], Query(description="a rank, or `launch` for the process that starts the ranks")
]
Node = Annotated[int, Query(ge=0, le=MAX_INT32, description="with rank=launch: number of the machine")]
Offset = Annotated[int, Query(ge=0, le=MAX_SERIAL, description="bytes of the log before the first one of interest")]


@router.get("/artifacts")
@may_answer("files-elsewhere")
@runs_in(FILES)
def list_artifacts(
    job_id: str,
    artifacts: Artifacts,
    principal: Viewer,
    below: Annotated[
        str | None, Query(max_length=500, description="name of an artifact, whose files are listed instead")
    ] = None,
) -> Page[Artifact]:
    """List what a run has left: its model, complete checkpoints, logs, profiles, scores, outcomes and its document."""
    return Page(items=artifacts.list_all(job_id, principal, below))


@router.get("/artifacts/{name:path}", response_class=Response, responses=DOWNLOAD, dependencies=[DownloadSlot])
@may_answer("files-elsewhere", "range-not-satisfiable")
@runs_in(FILES)
def download_artifact(job_id: str, name: str, request: Request, artifacts: Artifacts, principal: Viewer) -> Response:
    """Download an artifact by its name: a file as it is, a directory as an uncompressed tar archive.

    `model/MODEL_CARD.md` is a file of the artifact `model`. `Range` asks for a range of the bytes, also of an archive;
    with `If-Range` and the `ETag` of an earlier answer a download that was cut off goes on.
    """
    download = artifacts.open(job_id, principal, name)
    return send_content(request, download.content, download.file_name, download.media_type, FILES)


@router.get("/logs", dependencies=[LogSlot])
@runs_in(LOGS)
def get_logs(
    job_id: str,
    logs: Logs,
    principal: Viewer,
    attempt: AttemptNumber = None,
    rank: LogSource = 0,
    node: Node = 0,
    offset: Offset = 0,
    limit_bytes: Annotated[int, Query(ge=4, le=2**20, description="largest number of bytes of the part")] = 65_536,
    tail_lines: Annotated[
        int | None, Query(ge=1, le=100_000, description="read the last lines, so many, instead of those at `offset`")
    ] = None,
    before: Annotated[
        int | None,
        Query(ge=0, le=MAX_SERIAL, description="with `tail_lines`: read those before this byte; the end if omitted"),
    ] = None,
) -> LogPart:
    """Read a part of the log of a rank or of a launch process; `next_offset` is where the next part begins."""
    part = LogRange(offset, limit_bytes, tail_lines, before)
    return logs.read(job_id, principal, attempt, LogName(rank, node), part)


@router.get("/logs/matches", dependencies=[LogSlot])
@runs_in(LOGS)
def search_logs(
    job_id: str,
    q: Annotated[
        str, Query(min_length=1, max_length=200, description="text; the case of ASCII letters does not matter")
    ],
    logs: Logs,
    principal: Viewer,
    attempt: AttemptNumber = None,
    rank: LogSource = 0,
    node: Node = 0,
    offset: Offset = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="largest number of lines")] = 100,
) -> LogMatches:
    """Find the lines of a log that contain a text.

    One request searches 16 MiB at most: ask again from `next_offset` on, until `complete` is true or it stays the same.
    """
    return logs.search(job_id, principal, attempt, LogName(rank, node), Search(q, offset, limit))
