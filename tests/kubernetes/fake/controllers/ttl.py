"""Controller that deletes Jobs some time after their end."""

from tests.kubernetes.fake.api import Api
from tests.kubernetes.fake.clock import parse_time
from tests.kubernetes.fake.deletion import DeleteOptions
from tests.kubernetes.fake.objects import is_deleting
from tests.kubernetes.fake.resources import JOBS, Json


class TtlController:
    """Controller of ttlSecondsAfterFinished."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def sync(self) -> None:
        """Delete the Jobs whose time is over."""
        for job in self._api.list_all(JOBS):
            limit = job["spec"].get("ttlSecondsAfterFinished")
            at = _finished_at(job)
            if limit is None or at is None or is_deleting(job):
                continue
            if self._api.clock.now() >= at + limit:
                metadata: Json = job["metadata"]
                options = DeleteOptions(propagation_policy="Foreground", uid=metadata["uid"])
                self._api.delete(JOBS, metadata["namespace"], metadata["name"], options)


def _finished_at(job: Json) -> float | None:
    for condition in job["status"].get("conditions") or []:
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return parse_time(condition["lastTransitionTime"])
    return None
