"""Faults of single jobs: a job that the service cannot look after ends, and holds up nothing else."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy.exc import DBAPIError, StatementError

from service.control.round_errors import Faults, format_in_one_line
from service.database.failures import are_values_refused, is_storage_full
from service.leader.leadership import LeadershipLostError

MAX_FAILED_ROUNDS = 3
"""Rounds in a row after which a job ends, if waiting does not cure its errors."""
PASSING_SECONDS = 600.0
"""Seconds of passing errors, such as a file server's, after which a job ends."""
_LASTING = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    AssertionError,
    RecursionError,
    NotImplementedError,
    StatementError,
)
"""Errors that the data of a job, or the program, cause: they come again."""


@dataclass
class _Failing:
    """A job that fails in every round."""

    since: float
    """Time of its first failure, on the monotonic clock."""
    num_lasting: int = 0
    """Failures with errors that waiting does not cure."""


@dataclass
class JobFaults:
    """Guard of the work on single jobs, which ends a job once its work has failed too often."""

    faults: Faults
    end: Callable[[str, str], None]
    """Function that ends a job, by its id and the reason in words; while processes are left, it ends only these."""
    _failing: dict[str, _Failing] = field(default_factory=dict[str, _Failing], init=False)

    def guard(self, event: str, job_id: str, work: Callable[[], object]) -> None:
        """Do work on one job. Log an error, and end the job if there are too many. Raises LeadershipLostError."""
        try:
            work()
        except LeadershipLostError:
            raise
        except Exception as error:
            # Catches everything: the next round tries again, and this round must continue with the other jobs.
            self.faults.record(event, error, what=job_id)
            if self._is_over(job_id, error):
                self._end(job_id, error)
        else:
            self._failing.pop(job_id, None)

    def _is_over(self, job_id: str, error: Exception) -> bool:
        """Count a failure, and return whether the job had its last one."""
        if is_storage_full(error) or (isinstance(error, DBAPIError) and not are_values_refused(error)):
            # Concerns all jobs.
            return False
        failing = self._failing.setdefault(job_id, _Failing(time.monotonic()))
        failing.num_lasting += isinstance(error, _LASTING)
        return failing.num_lasting >= MAX_FAILED_ROUNDS or time.monotonic() - failing.since >= PASSING_SECONDS

    def _end(self, job_id: str, error: Exception) -> None:
        reason = (
            f"the service could not look after this job, again and again, and has ended it: {format_in_one_line(error)}"
        )
        try:
            self.end(job_id, reason)
        except LeadershipLostError:
            raise
        except Exception as end_error:
            # The next round tries again.
            self.faults.record("end_failed", end_error, what=job_id)
