"""The client: one method for each operation of the service."""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel

from service.client.connection import find_connection
from service.client.download import Downloader, OnProgress
from service.client.errors import ServiceError, ServiceUnreachableError
from service.client.following import JobState, Position, StreamUnusableError
from service.client.messages import Message
from service.client.patience import Patience
from service.client.transport import Transport
from service.client.waiting import OnSilence
from service.schemas import (
    ApiKey,
    Artifact,
    Attempt,
    AttemptStart,
    AuditEvent,
    Capacity,
    Checkpoint,
    Comparison,
    Curves,
    DeletedJob,
    EvaluationMetric,
    Event,
    Job,
    JobDetails,
    LabelCount,
    LoginLink,
    LogMatch,
    LogMatches,
    LogPart,
    Me,
    Metric,
    MetricPage,
    Page,
    Plan,
    RetentionPreview,
    RoleName,
    Schedule,
    Webhook,
)

Model = TypeVar("Model", bound=BaseModel)
Item = TypeVar("Item")
AnyPage = TypeVar("AnyPage", bound=Page[Any])

METRICS_PER_PAGE = 10_000


class Client:
    """Client of one service. Every method may raise ServiceError and ServiceUnreachableError."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        timeout_seconds: float = 30.0,
        on_silence: OnSilence | None = None,
    ) -> None:
        """Connect to a service. Raises ServiceUnknownError if its URL or API key cannot be found, or is invalid.

        url, api_key: if omitted, they are found as described in `service.client.connection`. timeout_seconds:
        longest time that a request waits for an answer, over all its tries. on_silence: called once for each request
        that has waited for some seconds, with the URL and the seconds left to wait.
        """
        connection = find_connection(url, api_key)
        self.url = connection.url
        self._transport = Transport(connection, timeout_seconds, on_silence)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def submit(self, document: Mapping[str, Any], idempotency_key: str | None = None) -> JobDetails:
        """Submit a job document, and return the new job.

        idempotency_key: two calls with the same key and document create only one job; a random key if omitted.
        """
        key = idempotency_key or uuid.uuid4().hex
        return self._transport.post("/v1/jobs", document, idempotency_key=key).parse(JobDetails)

    def plan(self, document: Mapping[str, Any]) -> Plan:
        """Plan the job of a document without submitting it, which may take seconds."""
        return self._transport.post("/v1/plans", document).parse(Plan)

    def jobs(
        self,
        *,
        state: str | Sequence[str] | None = None,
        label: str | Sequence[str] | None = None,
        name: str | None = None,
        owner: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        finished_after: datetime | None = None,
        finished_before: datetime | None = None,
        search: str | None = None,
    ) -> Iterator[Job]:
        """Yield all jobs that match the filters, newest first.

        state: one or several; one must match. label: written `key:value`, one or several; all must match.
        created_after, created_before: earliest time of submission, and the one before which it was. finished_after,
        finished_before: the same of its end. search: part of the name, the owner, the id or the value of a label.
        """
        return self._list_items(
            "/v1/jobs",
            Page[Job],
            state=state,
            label=label,
            name=name,
            owner=owner,
            created_after=created_after and created_after.isoformat(),
            created_before=created_before and created_before.isoformat(),
            finished_after=finished_after and finished_after.isoformat(),
            finished_before=finished_before and finished_before.isoformat(),
            q=search,
        )

    def labels(self, name: str | None = None) -> Iterator[LabelCount]:
        """Yield the labels of jobs, by name and value, each with its number of jobs.

        name: only the values of this label; all labels if omitted.
        """
        return self._list_items("/v1/labels", Page[LabelCount], name=name)

    def job(self, job_id: str) -> JobDetails:
        return self._get(JobDetails, f"/v1/jobs/{job_id}")

    def me(self) -> Me:
        """Return the key, owner and role of this client."""
        return self._get(Me, "/v1/me")

    def edit(
        self, job_id: str, *, labels: Mapping[str, str | None] | None = None, priority: int | None = None
    ) -> JobDetails:
        """Change labels of a job and, while it has not ended, its priority.

        labels: values by name; None removes a label, and others stay. priority: left as it is if omitted.
        """
        return self._transport.patch(f"/v1/jobs/{job_id}", {"labels": labels, "priority": priority}).parse(JobDetails)

    def compare(self, job_ids: Sequence[str]) -> Comparison:
        """Compare 2 to 20 jobs: differing settings and final figures; those that differ in seeds are one group."""
        return self._get(Comparison, "/v1/compare", ids=",".join(job_ids))

    def cancel(self, job_id: str) -> JobDetails:
        """Ask a job to stop. This returns at once; the job becomes CANCELLED soon after."""
        return self._transport.post(f"/v1/jobs/{job_id}/cancel").parse(JobDetails)

    def pause(self, job_id: str) -> JobDetails:
        """Ask a running job to save a checkpoint and stop.

        This returns at once; the job becomes PAUSED soon after, and stays so until `resume`.
        """
        return self._transport.post(f"/v1/jobs/{job_id}/pause").parse(JobDetails)

    def resume(self, job_id: str) -> JobDetails:
        """Queue a paused job again; it continues from its checkpoint once the scheduler starts it."""
        return self._transport.post(f"/v1/jobs/{job_id}/resume").parse(JobDetails)

    def hold(self, job_id: str) -> JobDetails:
        """Keep a queued job from starting, until `release`."""
        return self._transport.post(f"/v1/jobs/{job_id}/hold").parse(JobDetails)

    def release(self, job_id: str) -> JobDetails:
        """Let a held job start when its turn comes."""
        return self._transport.post(f"/v1/jobs/{job_id}/release").parse(JobDetails)

    def restart(self, job_id: str, idempotency_key: str | None = None) -> JobDetails:
        """Create a job with the document of a job that has ended, and return the new one.

        idempotency_key: two calls with the same key and id create only one job; a random key if omitted.
        """
        key = idempotency_key or uuid.uuid4().hex
        return self._transport.post(f"/v1/jobs/{job_id}/restart", idempotency_key=key).parse(JobDetails)

    def delete(self, job_id: str) -> DeletedJob:
        """Delete a job that has ended, with its model, checkpoints, logs and metrics.

        From then on there is no such job; its files are gone soon after, except for those that the service does not
        see: the answer says where they stay.
        """
        return self._transport.delete(f"/v1/jobs/{job_id}").parse(DeletedJob)

    def events(self, job_id: str) -> Iterator[Event]:
        """Yield the events of a job, oldest first."""
        return self._list_items(f"/v1/jobs/{job_id}/events", Page[Event])

    def attempts(self, job_id: str) -> Iterator[Attempt]:
        return self._list_items(f"/v1/jobs/{job_id}/attempts", Page[Attempt])

    def checkpoints(self, job_id: str) -> Iterator[Checkpoint]:
        """Yield the complete checkpoints of a job on the disk of the service, newest first."""
        return self._list_items(f"/v1/jobs/{job_id}/checkpoints", Page[Checkpoint])

    def metrics(
        self,
        job_id: str,
        *,
        kind: Literal["step", "evaluation"] | None = None,
        attempt: int | None = None,
    ) -> Iterator[Metric]:
        """Yield training steps and evaluations, oldest first, each once.

        Steps and evaluations that a later attempt has repeated are omitted.

        kind: only steps, or only evaluations. attempt: yield everything that this attempt reported, also what a later
        attempt has repeated. A service whose retention has removed the steps of a job has its `curves` alone.
        """
        query = {"kind": kind, "attempt": attempt, "limit": METRICS_PER_PAGE}
        pages = list(self._list_pages(f"/v1/jobs/{job_id}/metrics", MetricPage, **query))
        # The starts on the last page decide, because another attempt may have begun after the first page.
        items, starts = chain.from_iterable(page.items for page in pages), pages[-1].starts
        yield from (item for item in items if attempt is not None or is_valid(item, starts))

    def curves(
        self,
        job_id: str,
        names: Sequence[str] = ("loss", "auc"),
        *,
        resolution: int | None = None,
        since: int | None = None,
        attempt: int | None = None,
    ) -> Curves:
        """Return curves of a job, each with the minimum, maximum, mean and last value of its points.

        names: numbers of steps and evaluations, such as `samples_per_second`, or `gsnr` for all layers. resolution:
        largest number of points of an attempt; 500 if omitted. since: step after which points must end, to append to
        an earlier answer. attempt: everything of one attempt, also what a later one has repeated.
        """
        return self._get(
            Curves,
            f"/v1/jobs/{job_id}/curves",
            names=",".join(names),
            resolution=resolution,
            since=since,
            attempt=attempt,
        )

    def logs(
        self,
        job_id: str,
        *,
        attempt: int | None = None,
        rank: int | Literal["launch"] = 0,
        node: int | None = None,
        offset: int | None = None,
        tail_lines: int | None = None,
    ) -> LogPart:
        """Return a part of one log: from byte `offset` on, or the last `tail_lines` lines.

        attempt: number of the attempt, counted from 1; the last one if omitted. rank: a rank, or "launch" for the
        launch process, which starts the ranks. node: machine of a launch process; 0 if omitted.
        """
        return self._get(
            LogPart,
            f"/v1/jobs/{job_id}/logs",
            attempt=attempt,
            rank=rank,
            node=node,
            offset=offset,
            tail_lines=tail_lines,
        )

    def search_logs(
        self,
        job_id: str,
        text: str,
        *,
        attempt: int | None = None,
        rank: int | Literal["launch"] = 0,
        node: int | None = None,
    ) -> Iterator[LogMatch]:
        """Yield the lines of one log that contain a text, as far as it is written; the case does not matter.

        attempt, rank, node: as in `logs`.
        """
        search: LogSearch | None = LogSearch(job_id, text, attempt, rank, node)
        while search is not None:
            found = self._get(LogMatches, search.path, **search.params)
            yield from found.items
            search = search.go_on(found)

    def artifacts(self, job_id: str) -> Iterator[Artifact]:
        """Yield what a job has left: its model, complete checkpoints, logs, profiles, scores, outcomes and document."""
        return self._list_items(f"/v1/jobs/{job_id}/artifacts", Page[Artifact])

    def download(
        self,
        job_id: str,
        name: str = "model",
        to: Path | str | None = None,
        *,
        overwrite: bool = False,
        on_progress: OnProgress = lambda _, __: None,
        patience: Patience | None = None,
    ) -> Path:
        """Download an artifact, or a file of one, to `to/name`; return that path once all is there and was checked.

        A download that was cut off goes on at the next call. to: the id of the job if omitted, in the present
        directory. overwrite: replace what is there. on_progress: called with the bytes that are there, and the
        bytes in all. patience: ten minutes with a service that is away if omitted. Raises DownloadError,
        ServiceAwayError, and OSError if the files cannot be written.
        """
        downloader = Downloader(self._transport, job_id, patience or Patience(), on_progress)
        return downloader.download(name, Path(to or job_id), overwrite=overwrite)

    def stream(
        self, job_id: str, *, last_id: str | None = None, events: bool = True, patience: Patience | None = None
    ) -> Iterator[Message]:
        """Yield the messages of a job's stream, until it has ended; each event once, however often it is cut.

        last_id: id of an event after which to begin. events: whether there are messages of events, too. patience: with
        a service that is away; ten minutes if omitted. Raises ServiceAwayError, and StreamUnusableError if something
        on the way holds streams back.
        """
        patience = patience or Patience()
        position = Position(last_id)
        path, params = f"/v1/jobs/{job_id}/stream", {"events": None if events else "false"}
        while not position.is_at_end:
            position.begin()
            stream = patience.call(lambda: self._transport.open_stream(path, params, position.last_id))
            # Where it is cut, or the service stops, it goes on after the last message.
            with suppress(ServiceUnreachableError):
                for message in stream.read():
                    position.note(message)
                    yield message

    def follow(self, job_id: str, poll_seconds: float = 1.0, patience: Patience | None = None) -> Iterator[JobDetails]:
        """Yield the job now, and again after each change, until it has ended.

        poll_seconds: seconds between two requests, if the service is an older one or something on the way holds its
        streams back. patience: with a service that is away, at every request; if omitted, ten minutes at every request
        but the first one. Raises ServiceAwayError if it stays away for longer.
        """
        job = patience.call(lambda: self.job(job_id)) if patience else self.job(job_id)
        yield job
        patience = patience or Patience()
        if not job.has_ended:
            state = JobState(job)
            try:
                yield from filter(None, map(state.add, self.stream(job_id, events=False, patience=patience)))
            except (ServiceError, StreamUnusableError):
                yield from self._poll(state.newest, poll_seconds, patience)

    def _poll(self, job: JobDetails, poll_seconds: float, patience: Patience) -> Iterator[JobDetails]:
        """Yield a job after each change, until it has ended."""
        read = partial(self.job, job.id)
        while not job.has_ended:
            time.sleep(poll_seconds)
            previous, job = job, patience.call(read)
            if job != previous:
                yield job

    def capacity(self) -> Capacity:
        return self._get(Capacity, "/v1/capacity")

    def keys(self) -> Iterator[ApiKey]:
        return self._list_items("/v1/keys", Page[ApiKey])

    def create_key(
        self,
        name: str,
        role: RoleName,
        *,
        owner: str | None = None,
        expires_in_days: int | None = None,
    ) -> ApiKey:
        """Create an API key. Only this answer contains the secret, in `key`.

        owner: the name of the key if omitted. expires_in_days: the key never expires if omitted.
        """
        body = {"name": name, "role": role, "owner": owner, "expires_in_days": expires_in_days}
        return self._transport.post("/v1/keys", body).parse(ApiKey)

    def revoke_key(self, key_id: str) -> None:
        """Revoke an API key, which ends its browser sessions too."""
        self._transport.delete(f"/v1/keys/{key_id}").expect_nothing()

    def schedules(self) -> Iterator[Schedule]:
        """Yield the schedules by name: an admin sees all, others see the schedules of their owner."""
        return self._list_items("/v1/schedules", Page[Schedule])

    def schedule(self, schedule_id: str) -> Schedule:
        return self._get(Schedule, f"/v1/schedules/{schedule_id}")

    def create_schedule(
        self,
        name: str,
        cron: str,
        document: Mapping[str, Any],
        *,
        time_zone: str = "UTC",
        previous_job_id: str | None = None,
    ) -> Schedule:
        """Make a schedule, which submits `document` at the times of a cron expression.

        previous_job_id: job that `{previous_job}` in the document stands for, until one of the schedule has succeeded.
        """
        body = {"name": name, "cron": cron, "time_zone": time_zone, "document": document}
        return self._transport.post("/v1/schedules", {**body, "previous_job_id": previous_job_id}).parse(Schedule)

    def change_schedule(self, schedule_id: str, **changes: Any) -> Schedule:
        """Change `cron`, `time_zone`, `document`, `is_paused` or `previous_job_id` of a schedule."""
        return self._transport.patch(f"/v1/schedules/{schedule_id}", changes).parse(Schedule)

    def run_schedule(self, schedule_id: str) -> Schedule:
        """Make a schedule due at once; `last_result` says soon what became of it."""
        return self._transport.post(f"/v1/schedules/{schedule_id}/run").parse(Schedule)

    def delete_schedule(self, schedule_id: str) -> None:
        """Remove a schedule. Its jobs stay."""
        self._transport.delete(f"/v1/schedules/{schedule_id}").expect_nothing()

    def webhooks(self) -> Iterator[Webhook]:
        """Yield the webhooks, oldest first: all for an admin, else those for jobs of the own owner."""
        return self._list_items("/v1/webhooks", Page[Webhook])

    def create_webhook(
        self,
        url: str,
        *,
        states: Sequence[str] | None = None,
        labels: Mapping[str, str] | None = None,
        owner: str | None = None,
    ) -> Webhook:
        """Make a webhook. Only this answer contains the secret of its signatures, in `secret`.

        states: those whose beginning is sent; the ends of a job if omitted. labels: labels that a job must all have.
        owner: owner of the jobs, for an admin; `*` for all.
        """
        body = {"url": url, "states": states, "labels": labels, "owner": owner}
        known = {name: value for name, value in body.items() if value is not None}
        return self._transport.post("/v1/webhooks", known).parse(Webhook)

    def delete_webhook(self, webhook_id: str) -> None:
        self._transport.delete(f"/v1/webhooks/{webhook_id}").expect_nothing()

    def test_webhook(self, webhook_id: str) -> Webhook:
        """Have a test sent; `last_result` of the webhook has the answer soon after."""
        return self._transport.post(f"/v1/webhooks/{webhook_id}/test").parse(Webhook)

    def create_login_link(
        self,
        role: RoleName | None = None,
        *,
        owner: str | None = None,
        minutes: int = 10,
    ) -> LoginLink:
        """Create a link that signs one browser in, within so many minutes.

        role, owner: the role and owner of the client's key if omitted.
        """
        body = {"role": role, "owner": owner, "minutes": minutes}
        return self._transport.post("/v1/session/links", body).parse(LoginLink)

    def audit(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[AuditEvent]:
        """Yield the rows of the audit log that match the filters, newest first.

        actor: owner of the key that acted. target: id or name of what was changed. since, until: times with a zone;
        rows at `until` are left out.
        """
        begin, end = (moment.isoformat() if moment else None for moment in (since, until))
        filters = {"actor": actor, "action": action, "target": target, "since": begin, "until": end}
        return self._list_items("/v1/audit", Page[AuditEvent], **filters)

    def retention(
        self, *, days: float | None = None, jobs_per_owner: int | None = None, run_bytes: int | None = None
    ) -> RetentionPreview:
        """Return what retention would remove now, by these rules; by the service's own if all are omitted."""
        rules = {"days": days, "jobs_per_owner": jobs_per_owner, "run_bytes": run_bytes}
        return self._get(RetentionPreview, "/v1/retention", **rules)

    def _get(self, model: type[Model], path: str, **params: Any) -> Model:
        return self._transport.get(path, params).parse(model)

    def _list_items(self, path: str, page_type: type[Page[Item]], **params: Any) -> Iterator[Item]:
        """Yield every item of a list."""
        for page in self._list_pages(path, page_type, **params):
            yield from page.items

    def _list_pages(self, path: str, page_type: type[AnyPage], **params: Any) -> Iterator[AnyPage]:
        """Yield the pages of a list. Each is requested only once it is needed."""
        cursor: str | None = None
        while True:
            page = self._get(page_type, path, **params, cursor=cursor)
            yield page
            if (cursor := page.next_cursor) is None:
                return


@dataclass(frozen=True)
class LogSearch:
    """Request for lines of a log from byte `offset` on that contain a text."""

    job_id: str
    text: str
    attempt: int | None
    rank: int | Literal["launch"]
    node: int | None
    offset: int = 0

    @property
    def path(self) -> str:
        return f"/v1/jobs/{self.job_id}/logs/matches"

    @property
    def params(self) -> dict[str, Any]:
        own = {"attempt": self.attempt, "rank": self.rank, "node": self.node, "offset": self.offset}
        return {"q": self.text, **own}

    def go_on(self, found: LogMatches) -> "LogSearch | None":
        """Return the next request after an answer; None if all was searched."""
        if found.complete or found.next_offset <= self.offset:
            return None
        return replace(self, offset=found.next_offset, attempt=found.attempt)


def is_valid(metric: Metric, starts: Sequence[AttemptStart]) -> bool:
    """Whether no later attempt has repeated a metric. starts: of all attempts."""
    is_evaluation = isinstance(metric, EvaluationMetric)
    return all(
        metric.step <= (start.evaluated_step if is_evaluation else start.step)
        for start in starts
        if start.attempt > metric.attempt
    )
