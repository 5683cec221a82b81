"""Pauses before the pods of a Job are created anew after failures."""

from dataclasses import dataclass, field

from tests.kubernetes.fake.clock import Clock, parse_time
from tests.kubernetes.fake.objects import find_condition
from tests.kubernetes.fake.resources import Json

FIRST_SECONDS = 10.0
MAX_SECONDS = 600.0


@dataclass
class _Record:
    num_failures: int = 0
    """Failures since the last success."""
    last_failure_at: float = 0.0
    seen: set[str] = field(default_factory=set)


class FailureBackoff:
    """Pauses of all Jobs: 10 s after the first failure in a row, twice as long after each further one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: dict[str, _Record] = {}

    def note(self, job_uid: str, succeeded: list[Json], failed: list[Json]) -> None:
        """Note pods of a Job that have ended. Pods that were noted before do not count again."""
        record = self._records.setdefault(job_uid, _Record())
        ended = sorted(
            [
                (finished_at(pod), pod["metadata"]["uid"], is_success)
                for pods, is_success in ((failed, False), (succeeded, True))
                for pod in pods
                if pod["metadata"]["uid"] not in record.seen
            ]
        )
        for at, uid, is_success in ended:
            record.seen.add(uid)
            record.num_failures = 0 if is_success else record.num_failures + 1
            record.last_failure_at = at

    def remaining_seconds(self, job_uid: str) -> float:
        """Return how long no pod of a Job may be created yet."""
        record = self._records.get(job_uid)
        if record is None or record.num_failures == 0:
            return 0.0
        return max(0.0, pause_after(record.num_failures) - (self._clock.now() - record.last_failure_at))


def pause_after(num_failures: int) -> float:
    """Return the seconds between the last of some failures in a row and the next pod."""
    return min(FIRST_SECONDS * 2 ** (num_failures - 1), MAX_SECONDS)


def finished_at(pod: Json) -> float:
    """Return when a pod ended, or is thought to have ended."""
    states = [one["state"] for one in pod["status"].get("containerStatuses") or []]
    times = [state["terminated"].get("finishedAt") for state in states if "terminated" in state]
    if times and len(times) == len(states) and all(times):
        return max(map(parse_time, times))
    ready = find_condition(pod, "Ready")
    if ready is not None and ready["status"] == "False":
        return parse_time(ready["lastTransitionTime"])
    metadata: Json = pod["metadata"]
    if "deletionTimestamp" in metadata:
        return parse_time(metadata["deletionTimestamp"]) - metadata.get("deletionGracePeriodSeconds", 0)
    return parse_time(metadata["creationTimestamp"])
