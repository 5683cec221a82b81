"""Changes that a user asks of one job, each refused by ProblemError if the state of the job does not allow it."""

from dlrm.config import MAX_LABELS, FieldError
from service.access.principal import Principal
from service.http.problems import conflict, invalid_request
from service.jobs.schemas import JobChanges
from service.reasons import Reason
from service.store.job_repository import Change, JobRepository
from service.store.models import Job
from service.store.states import ENDED, TRANSITIONS, JobState


def describe_sender(principal: Principal) -> str:
    """Return words for the sender of a request. Names of keys alone would not do: two owners may use the same."""
    return f"{principal.owner} (key {principal.name})"


def cancel(jobs: JobRepository, job: Job, principal: Principal) -> None:
    """Cancel a job: at once if it waits, else after its attempt was stopped."""
    state = JobState(job.state)
    if state is JobState.CANCELLING:
        return
    for target in (JobState.CANCELLED, JobState.CANCELLING):
        if target in TRANSITIONS[state]:
            message = f"cancelled by {describe_sender(principal)}"
            jobs.change_state(job, Change(target, Reason.USER_CANCELLED, actor=principal.owner, message=message))
            return
    raise conflict(f"{job.id} has already ended: {state}", state=state)


def pause(jobs: JobRepository, job: Job, principal: Principal) -> None:
    """Stop a running job after a checkpoint, from which it continues once it is resumed."""
    if job.state in (JobState.PAUSING, JobState.PAUSED):
        return
    if job.state != JobState.RUNNING:
        raise conflict(f"{job.id} is {job.state}: only a RUNNING job can be paused", state=job.state)
    message = f"paused by {describe_sender(principal)}"
    jobs.change_state(job, Change(JobState.PAUSING, Reason.USER_PAUSED, actor=principal.owner, message=message))


def resume(jobs: JobRepository, job: Job, principal: Principal) -> None:
    if job.state != JobState.PAUSED:
        raise conflict(f"{job.id} is {job.state}: only a PAUSED job can be resumed", state=job.state)
    message = f"resumed by {describe_sender(principal)}"
    jobs.change_state(job, Change(JobState.QUEUED, Reason.RESUMED, actor=principal.owner, message=message))


def hold(jobs: JobRepository, job: Job, principal: Principal) -> None:
    """Keep a queued job from starting until it is released."""
    _set_held(jobs, job, principal, Reason.HELD)


def release(jobs: JobRepository, job: Job, principal: Principal) -> None:
    _set_held(jobs, job, principal, Reason.RELEASED)


def _set_held(jobs: JobRepository, job: Job, principal: Principal, reason: Reason) -> None:
    if job.state != JobState.QUEUED:
        raise conflict(f"{job.id} is {job.state}: only a QUEUED job can be {reason}", state=job.state)
    if job.is_held != (reason is Reason.HELD):
        jobs.set_held(job, reason, principal.owner, f"{reason} by {describe_sender(principal)}")


def edit(jobs: JobRepository, job: Job, principal: Principal, changes: JobChanges) -> None:
    """Change labels of a job and, until it has ended, its priority. Nothing is recorded if nothing changes."""
    job = jobs.lock(job.id)
    before = jobs.get_labels(job.id)
    wanted = before | (changes.labels or {})
    labels = {name: value for name, value in wanted.items() if value is not None}
    priority = job.priority if changes.priority is None else changes.priority
    if len(labels) > MAX_LABELS:
        raise invalid_request([FieldError("labels", f"the job would have {len(labels)}", f"at most {MAX_LABELS}")])
    if priority != job.priority and job.state in ENDED:
        raise conflict(f"{job.id} has already ended: {job.state}; only its labels can be changed", state=job.state)
    words = [f"priority {job.priority} -> {priority}"] if priority != job.priority else []
    words += [f"label {name} = {value}" for name, value in labels.items() if before.get(name) != value]
    words += [f"no label {name}" for name in before if name not in labels]
    if words:
        message = f"{', '.join(words)} by {describe_sender(principal)}"
        jobs.edit(job, labels, priority, principal.owner, message)


_ADVICE = {JobState.CANCELLING: "wait for its end", JobState.PAUSED: "resume it, or cancel it first"}


def require_end(job: Job, participle: str) -> None:
    """Raise ProblemError if `job` has not ended; it says what to do. participle: what is asked, as "deleted"."""
    state = JobState(job.state)
    if state not in ENDED:
        advice = _ADVICE.get(state, "cancel it first, or wait for its end")
        detail = f"{job.id} is {state}: only a job that has ended can be {participle}; {advice}"
        raise conflict(detail, state=state)
