"""Check that a job has ended, for what is possible only then."""

from service.http.problems import conflict
from service.jobs.models import Job
from service.jobs.states import ENDED, JobState

_ADVICE = {JobState.CANCELLING: "wait for its end", JobState.PAUSED: "resume it, or cancel it first"}


def require_end(job: Job, participle: str) -> None:
    """Raise ProblemError where `job` has not ended; it says what to do. participle: what is asked, as "deleted"."""
    state = JobState(job.state)
    if state not in ENDED:
        advice = _ADVICE.get(state, "cancel it first, or wait for its end")
        detail = f"{job.id} is {state}: only a job that has ended can be {participle}; {advice}"
        raise conflict(detail, state=state)
