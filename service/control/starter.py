"""Start of one attempt: first its row, then its files, then its process, so that each step can be repeated."""

import json

from dlrm.config import ResolvedJob, format_count
from dlrm.record import PushTarget
from service.access.secret import hash_secret, new_secret
from service.ids import new_id
from service.launchers.protocol import LaunchFiles
from service.launchers.registry import Launchers
from service.leader.leadership import Leadership
from service.observability.telemetry import Telemetry
from service.reasons import SCHEDULER, Reason
from service.reports.progress import ReportedProgress
from service.store.attempt_repository import AttemptRepository
from service.store.job_repository import Change, JobRepository, StateChangedError
from service.store.launches import make_launch
from service.store.models import Attempt, Job, JobDocument
from service.store.states import AttemptState, JobState
from service.times import now


class Starter:
    def __init__(self, leadership: Leadership, launchers: Launchers, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._leadership = leadership
        self._launchers = launchers

    def begin(self, job: Job) -> Attempt:
        """Create the next attempt of a waiting job, which is the intent to launch it, and lease it.

        Raises StateChangedError if the job no longer waits, and LeadershipLostError.
        """
        with self._leadership.write() as session:
            jobs, attempts = JobRepository(session), AttemptRepository(session)
            number = job.num_attempts + 1
            change = Change(JobState.STARTING, Reason.SCHEDULED, actor=SCHEDULER, attempt=number)
            current = jobs.expect(job.id, JobState.QUEUED)
            gpus = self._choose_gpus(attempts, job)
            jobs.change_state(current, change)
            lease = self._leadership.make_lease()
            attempt = Attempt(
                id=new_id("att"),
                job_id=job.id,
                number=number,
                state=AttemptState.STARTING.value,
                message="",
                token_hash="",
                stop_message="",
                started_at=now(),
                lease_owner=lease.owner,
                lease_token=lease.token,
                lease_expires_at=lease.expires_at,
                devices={"gpus": gpus},
            )
            attempts.add(attempt)
            progress = ReportedProgress.model_validate(current.progress).carry_over()
            jobs.update(job.id, num_attempts=number, progress=progress.model_dump(), has_warnings=False)
            # Those of an earlier attempt no longer hold once this one trains.
            jobs.get_document(job.id).metrics = {}
        waited = (attempt.started_at - job.created_at).total_seconds() if number == 1 else None
        self._telemetry.begin_attempt(attempt.id, job.launcher, waited)
        return attempt

    def launch(self, job: Job, attempt: Attempt) -> None:
        """Write the files of an attempt and start its process; harmless where it runs already.

        Raises LaunchError if either fails, StateChangedError if the job is no longer starting, and
        LeadershipLostError if another process may be about to start the attempt.
        """
        token, launcher = new_secret(), self._launchers[job.launcher]
        with self._leadership.write() as session:
            jobs = JobRepository(session)
            jobs.expect(job.id, JobState.STARTING)
            document = _dump_document(jobs.get_document(job.id))
            # Before the start: otherwise a leader on another machine might look for the process there, and miss it.
            AttemptRepository(session).update(attempt.id, token_hash=hash_secret(token), node=launcher.node)
        # A cluster may take almost as long as the leases last.
        self._leadership.renew()
        url = f"{launcher.ingest_url}/v1/ingest/{attempt.id}"
        target = PushTarget(url=url, token=token, shares_files=launcher.shares_files)
        launcher.start(make_launch(job, attempt), LaunchFiles(document, target.model_dump_json()))

    def _choose_gpus(self, attempts: AttemptRepository, job: Job) -> list[int]:
        """Choose the lowest numbers of GPUs that no other attempt has. Raises StateChangedError if they are few.

        Empty if a machine is found for each attempt: whoever finds it also chooses its GPUs.
        """
        launcher = self._launchers[job.launcher]
        if launcher.node is None:
            return []
        capacity, num_gpus = launcher.capacity(), job.num_gpus
        taken = {gpu for attempt in attempts.list_active() for gpu in (attempt.devices or {}).get("gpus", [])}
        free = [gpu for gpu in range(capacity.node.num_gpus if capacity else 0) if gpu not in taken]
        if len(free) < num_gpus:
            raise StateChangedError(f"needs {format_count(num_gpus, 'GPU')}, {len(free)} free")
        return free[:num_gpus]


def _dump_document(document: JobDocument) -> str:
    # Through the model, whose form the trainer reads: another version of the service may have stored the document.
    return ResolvedJob.model_validate_json(json.dumps(document.resolved)).model_dump_json(indent=1)
