"""Memory of kubelets: how pods shall behave, and how far each has come."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.kubernetes.fake.controllers.behaviours import Behaviour, Ending
from tests.kubernetes.fake.controllers.job_indexes import completion_index
from tests.kubernetes.fake.resources import Json

PodMatcher = int | str | Callable[[Json], bool] | None
"""Choice of pods: a completion index, the beginning of a name, a function, or None for all."""


@dataclass
class BehaviourRule:
    """Behaviour of some pods."""

    matches: Callable[[Json], bool]
    behaviour: Behaviour
    times: int | None


@dataclass
class Runtime:
    """Knowledge of a kubelet about one pod."""

    pod: Json
    """Pod as the kubelet last saw it."""
    behaviour: Behaviour
    stage: str = "new"
    """Stage: new, creating, running, backing off, or ended."""
    started_at: float = 0.0
    told: Ending | None = None
    """End that the test wants."""
    eviction_message: str = ""
    sigterm_sent: bool = False
    restart_count: int = 0
    last_state: Json = field(default_factory=dict)
    restart_at: float = 0.0
    log: str = ""
    previous_log: str = ""


def make_matcher(pods: PodMatcher) -> Callable[[Json], bool]:
    """Return whether a pod is chosen."""
    if pods is None:
        return lambda _: True
    if isinstance(pods, int):
        return lambda pod: completion_index(pod) == pods
    if isinstance(pods, str):
        return lambda pod: pod["metadata"]["name"].startswith(pods)
    return pods
