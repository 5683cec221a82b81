"""Operations on jobs, such as submit, show, cancel and restart."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Annotated, Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from dlrm.config import ConfigError, FieldError, JobSpec
from service.access.data_roots import DataAccess
from service.access.principal import Principal, Role
from service.access.visibility import get_visible_job
from service.audit.log import AuditLog
from service.audit.models import AuditAction
from service.capacity.known import KnownCapacity
from service.database import Database
from service.http.paging import Page
from service.http.problems import ProblemError
from service.ids import is_id, new_id
from service.jobs import actions
from service.jobs.actions import require_end
from service.jobs.document import (
    choose_machines,
    parse_document,
    resolve_for_launcher,
    resolve_job_paths,
    resolve_launcher,
)
from service.jobs.schemas import AttemptView, CheckpointView, EventView, JobChanges, JobDetail, dump_page, dump_rows
from service.jobs.warm_start import WarmStarts, hold_source
from service.launchers.registry import Launchers
from service.parts import depend_on
from service.queue.place import explain_waits, find_place
from service.quotas.service import check_submission
from service.reasons import Reason
from service.schemas import Facets, FacetValue, LabelCount, LabelFacet
from service.settings import Settings
from service.store.attempt_repository import AttemptRepository
from service.store.batch import find_batch
from service.store.demand import compute_demand, get_full_demand, list_faults
from service.store.idempotency_repository import IdempotencyRepository
from service.store.job_facets import count_facets
from service.store.job_lists import JobFilter, JobLists
from service.store.job_repository import JobRepository, StateChangedError
from service.store.models import Job, JobDocument
from service.store.run_facts import RunFacts
from service.store.states import JobState
from service.times import now

Action = Callable[[JobRepository, Job, Principal], None]
_AUDITED: dict[Action, AuditAction] = {
    actions.cancel: AuditAction.JOB_CANCELLED,
    actions.pause: AuditAction.JOB_PAUSED,
    actions.resume: AuditAction.JOB_RESUMED,
    actions.hold: AuditAction.JOB_HELD,
    actions.release: AuditAction.JOB_RELEASED,
}
"""Function that changes one job, a row of the repository's session, on behalf of a sender."""


@dataclass(frozen=True)
class EventQuery:
    """Page of the events of a job that somebody asks for."""

    after: int
    """Id of the event after which the page begins, in its order; 0: from the beginning."""
    limit: int
    names: tuple[str, ...] = ()
    """Names to choose events by; empty: all events."""
    is_newest_first: bool = False


@dataclass(frozen=True)
class Submission:
    """A job document as received, its sender, and the client's idempotency key if there is one."""

    document: Mapping[str, Any]
    principal: Principal
    idempotency_key: str | None = None
    restarted: Job | None = None
    """Job whose document and owner the new job takes over; None if the sender wrote the document."""
    schedule_note: str = ""
    """Schedule that submits the job, and its time; empty if none does. Its idempotency key says which job is meant."""

    @property
    def owner(self) -> str:
        return self.restarted.owner if self.restarted else self.principal.owner

    @property
    def reader(self) -> Principal:
        """Reader of the data: the owner of the job sees what comes of them, so a restart has his rights alone."""
        if self.restarted is None or self.restarted.owner == self.principal.owner:
            return self.principal
        return replace(self.principal, owner=self.restarted.owner, role=Role.SUBMITTER)

    @property
    def description(self) -> str:
        sender = actions.describe_sender(self.principal)
        if self.schedule_note:
            return f"submitted by {self.schedule_note}, of {sender}"
        return f"restart of {self.restarted.id} by {sender}" if self.restarted else f"submitted by {sender}"

    @property
    def request_hash(self) -> str:
        if self.schedule_note:
            # The document depends on what else has happened until it is sent again.
            content: object = {"schedule": self.idempotency_key}
        else:
            content = {"restart": self.restarted.id} if self.restarted else self.document
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class JobService:
    """Operations on jobs. Those on one job raise ProblemError where the sender may know of no such job."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        launchers: Launchers,
        access: DataAccess,
        capacity: KnownCapacity,
        audit: AuditLog,
        facts: RunFacts,
        on_change: Callable[[], None],
    ) -> None:
        """Call `on_change` after every change that the control loop should look at."""
        self._database = database
        self._audit = audit
        self._facts = facts
        self._settings = settings
        self._launchers = launchers
        self._capacity = capacity
        self._access = access
        self._warm_starts = WarmStarts(database, access, settings.private_directories, facts, launchers)
        self._on_change = on_change

    def submit(self, submission: Submission) -> tuple[JobDetail, bool]:
        """Create a job, or find the one that an earlier identical submission created; the bool is whether it is new.

        Raises ConfigError if the document is invalid, and ProblemError if the job can never fit this machine or
        its idempotency key belongs to another request.
        """
        with self._database.read() as session:
            earlier = self._find_earlier(session, submission)
            if earlier:
                return earlier, False
        spec = parse_document(submission.document)
        job, document = self._make_job(spec, submission)
        try:
            view, is_new = self._add(job, document, spec, submission)
        except IntegrityError:
            # A concurrent submission with the same key was faster.
            with self._database.read() as session:
                earlier = self._find_earlier(session, submission)
            if earlier is None:
                raise
            return earlier, False
        self._on_change()
        return view, is_new

    def _add(self, job: Job, document: JobDocument, spec: JobSpec, submission: Submission) -> tuple[JobDetail, bool]:
        with self._database.write() as session:
            earlier = self._find_earlier(session, submission)
            if earlier:
                return earlier, False
            hold_source(spec, session)
            jobs = JobRepository(session)
            check_submission(session, job.owner, get_full_demand(job).total)
            jobs.add(job, document, spec.labels, actor=submission.principal.owner, message=submission.description)
            if submission.restarted is not None:
                actor, earlier_id = submission.principal.actor, submission.restarted.id
                self._audit.record_foreign(session, actor, AuditAction.JOB_RESTARTED, earlier_id, job.owner)
            if submission.idempotency_key is not None:
                sender_id, request_hash = submission.principal.sender_id, submission.request_hash
                IdempotencyRepository(session).add(sender_id, submission.idempotency_key, request_hash, job.id)
            return JobDetail.read(session, job, self._facts), True

    def _find_earlier(self, session: Session, submission: Submission) -> JobDetail | None:
        """Return the job that this submission created before; None if it has no key or created none.

        Raises ProblemError if the key belongs to another request.
        """
        if submission.idempotency_key is None:
            return None
        earlier = IdempotencyRepository(session).get(submission.principal.sender_id, submission.idempotency_key)
        if earlier is None:
            return None
        if earlier.body_hash != submission.request_hash:
            raise ProblemError(
                "idempotency-mismatch",
                f"Idempotency-Key {submission.idempotency_key!r} created {earlier.job_id} by another request; "
                "send that request again, or use another key",
            )
        job = JobRepository(session).get(earlier.job_id)
        return None if job is None else JobDetail.read(session, job, self._facts)

    def restart(self, job_id: str, principal: Principal, idempotency_key: str | None = None) -> tuple[JobDetail, bool]:
        """Create a job with the document of an ended one, or find the job that an earlier identical request created;
        the bool is whether it is new.

        The paths of the document are resolved anew, and the new job belongs to the owner of the old one. Raises
        ConfigError and ProblemError as `submit` does, and ProblemError if the job has not ended.
        """
        with self._database.read() as session:
            job = get_visible_job(session, job_id, principal)
            spec = JobRepository(session).get_document(job_id).spec
        require_end(job, "restarted")
        return self.submit(Submission(spec, principal, idempotency_key, restarted=job))

    def check(self, document: Mapping[str, Any], principal: Principal) -> tuple[JobSpec | None, Sequence[FieldError]]:
        """Return a document as it was read, None if it is invalid by itself, and the errors for which a submission by
        `principal` would be refused."""
        spec = None
        try:
            spec = parse_document(document)
            name = resolve_launcher(spec, self._launchers)
            chosen = choose_machines(spec, name)
            self._resolve_sources(chosen, name, principal)
        except ConfigError as error:
            return spec, error.errors
        return spec, list_faults(chosen, name, self._capacity.read().get(name))

    def _resolve_sources(self, spec: JobSpec, launcher: str, reader: Principal) -> JobSpec:
        """Return a job with the paths of its data and of the model that it starts from. Raises ConfigError."""
        roots = self._access.list_roots(launcher, reader)
        absolute = resolve_job_paths(spec, self._launchers[launcher], roots, self._settings.private_directories)
        return self._warm_starts.resolve(absolute, reader, launcher)

    def _make_job(self, spec: JobSpec, submission: Submission) -> tuple[Job, JobDocument]:
        name = resolve_launcher(spec, self._launchers)
        launcher = self._launchers[name]
        chosen = choose_machines(spec, name)
        roots = self._access.list_roots(name, submission.reader)
        absolute = self._resolve_sources(chosen, name, submission.reader)
        demand = compute_demand(chosen)
        if errors := list_faults(chosen, name, self._capacity.read().get(name)):
            raise ProblemError("cannot-fit", "; ".join(map(str, errors)), errors=errors)
        document = spec.model_dump(mode="json")
        resolved = resolve_for_launcher(absolute, launcher, roots).model_dump(mode="json")
        job_id = new_id("job")
        created_at = now()
        source = spec.run.warm_start.source if spec.run.warm_start else ""
        job = Job(
            id=job_id,
            name=spec.name,
            priority=spec.priority,
            state=JobState.QUEUED.value,
            reason=Reason.SUBMITTED.value,
            message="",
            created_at=created_at,
            deadline_at=_find_deadline_from_submission(spec, created_at),
            created_by=submission.principal.name,
            owner=submission.owner,
            restarted_from=submission.restarted.id if submission.restarted else None,
            num_attempts=0,
            launcher=name,
            world_size=chosen.resources.world_size,
            num_nodes=demand.num_nodes,
            min_nodes=demand.min_nodes,
            num_cores=demand.node.num_cores,
            memory_bytes=demand.node.memory_bytes,
            num_gpus=demand.node.num_gpus,
            max_restarts=spec.max_restarts,
            deadline_seconds=spec.deadline_seconds,
            warm_start_job_id=source if is_id(source, "job") else None,
            placement=spec.resources.kubernetes.model_dump(mode="json"),
            batch=find_batch(document, resolved),
            optimizer=spec.dense_optimizer.name,
            progress={},
            run_directory=str(launcher.places.runs_directory / job_id),
        )
        return job, JobDocument(job_id=job_id, spec=document, resolved=resolved, metrics={})

    def edit(self, job_id: str, principal: Principal, changes: JobChanges) -> JobDetail:
        """Change labels and priority of a job. Raises ProblemError as `change` does."""
        return self.change(job_id, principal, partial(actions.edit, changes=changes), AuditAction.JOB_EDITED)

    def change(
        self, job_id: str, principal: Principal, action: Action, audited: AuditAction | None = None
    ) -> JobDetail:
        """Apply `action`, such as `actions.cancel`, to the current state of a job.

        audited: its name in the audit log; None for one of _AUDITED.

        It is repeated if the state was changed at the same time. Raises ProblemError if the state does not allow it.
        """
        while True:
            try:
                with self._database.write() as session:
                    job = get_visible_job(session, job_id, principal)
                    action(JobRepository(session), job, principal)
                    name = audited or _AUDITED[action]
                    self._audit.record_foreign(session, principal.actor, name, job.id, job.owner)
                    view = JobDetail.read(session, job, self._facts)
            except StateChangedError:
                continue
            self._on_change()
            return view

    def list_page(
        self, chosen: JobFilter, principal: Principal, *, cursor: str | None = None, limit: int = 50
    ) -> bytes:
        """Return the JSON of one page of the jobs that `principal` may know of, newest first.

        cursor: id of the last job of the previous page.
        """
        with self._database.read() as session:
            rows = JobLists(session).list_page(
                chosen, visible_owner=principal.visible_owner, before=cursor, limit=limit + 1
            )
            shown = rows[:limit]
            waits = explain_waits(session, shown, self._capacity.read)
        return dump_page(shown, waits, next_cursor=shown[-1].id if len(rows) > limit else None)

    def list_labels(
        self, name: str | None, principal: Principal, *, after: tuple[str, str] | None, limit: int
    ) -> Page[LabelCount]:
        """Return one page of the labels of the jobs that `principal` may know of, each with its number of jobs.

        name: only the values of this label; None lists all labels. after: last label of the previous page.
        """
        with self._database.read() as session:
            found = JobLists(session).list_labels(
                name, visible_owner=principal.visible_owner, after=after, limit=limit + 1
            )
        items = [LabelCount(name=name, value=value, num_jobs=number) for name, value, number in found[:limit]]
        last = items[-1] if len(found) > limit else None
        return Page(items=items, next_cursor=last and f"{last.name}:{last.value}")

    def count_facets(self, chosen: JobFilter, principal: Principal) -> Facets:
        """Count the jobs of a list that `principal` may know of by state, owner and label."""
        with self._database.read() as session:
            found = count_facets(session, chosen, visible_owner=principal.visible_owner)
        return Facets(
            num_jobs=found.num_jobs,
            states=_list_values(found.states),
            owners=_list_values(found.owners),
            labels=[
                LabelFacet(name=label.name, num_values=label.num_values, values=_list_values(label.values))
                for label in found.labels
            ],
            is_exact=found.is_exact,
            are_labels_exact=found.are_labels_exact,
        )

    def get(self, job_id: str, principal: Principal) -> JobDetail:
        """Return a job with its document."""
        with self._database.read() as session:
            return self._view_detail(session, get_visible_job(session, job_id, principal), principal.visible_owner)

    def view_detail(self, job_id: str) -> JobDetail | None:
        """Return a job with its document as its owner sees it; None if it is absent or being deleted."""
        with self._database.read() as session:
            job = JobRepository(session).get(job_id)
            return None if job is None or job.deleting_at is not None else self._view_detail(session, job, job.owner)

    def view_rows(self, job_ids: Sequence[str]) -> list[dict[str, Any]]:
        """Return the rows of the jobs with these ids that are not being deleted, as JSON values of lists.

        Whoever may know of them is left to the caller.
        """
        with self._database.read() as session:
            rows = JobLists(session).list_by_ids(job_ids)
            return dump_rows(rows, explain_waits(session, rows, self._capacity.read))

    def _view_detail(self, session: Session, job: Job, visible_owner: str | None) -> JobDetail:
        read_capacities = cache(self._capacity.read)
        wait = explain_waits(session, [job], read_capacities).get(job.id)
        place = find_place(session, job, wait, read_capacities, visible_owner)
        return JobDetail.read(session, job, self._facts, wait, place)

    def list_events(self, job_id: str, principal: Principal, chosen: EventQuery) -> Page[EventView]:
        """Return one page of a job's events."""
        with self._database.read() as session:
            get_visible_job(session, job_id, principal)
            events, has_more = JobRepository(session).list_events(
                job_id, chosen.after, chosen.limit, names=chosen.names, is_newest_first=chosen.is_newest_first
            )
        views = [EventView.model_validate(event) for event in events]
        return Page(items=views, next_cursor=views[-1].id if has_more else None)

    def list_attempts(self, job_id: str, principal: Principal) -> list[AttemptView]:
        """List the attempts of a job, oldest first."""
        with self._database.read() as session:
            get_visible_job(session, job_id, principal)
            return [AttemptView.model_validate(attempt) for attempt in AttemptRepository(session).list_by_job(job_id)]

    def list_checkpoints(self, job_id: str, principal: Principal) -> list[CheckpointView]:
        """List the complete checkpoints of a job, newest first."""
        with self._database.read() as session:
            job = get_visible_job(session, job_id, principal)
            num_samples = job.progress.get("num_run_samples")
        return [CheckpointView.from_checkpoint(found, num_samples) for found in self._facts.list_checkpoints(job)]


Jobs = Annotated[JobService, depend_on(JobService)]
"""Parameter type of an endpoint that needs the service."""


def _list_values(numbers: Mapping[str, int]) -> list[FacetValue]:
    return [FacetValue(value=value, num_jobs=number) for value, number in numbers.items()]


def _find_deadline_from_submission(spec: JobSpec, created_at: datetime) -> datetime | None:
    """Return the time of a deadline that includes the job's wait; None for other jobs."""
    if spec.deadline_from != "submission" or spec.deadline_seconds is None:
        return None
    return created_at + timedelta(seconds=spec.deadline_seconds)
