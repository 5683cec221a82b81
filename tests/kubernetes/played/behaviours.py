"""Ways in which pods behave, chosen by tests."""

from dataclasses import dataclass
from typing import Protocol

from tests.kubernetes.fake.resources import Json


@dataclass(frozen=True)
class Ending:
    """End of a container."""

    exit_code: int
    reason: str = ""
    """Reason of the terminated state; by default Completed for exit code 0, else Error."""
    message: str = ""
    """Content of the file /dev/termination-log."""


class Process(Protocol):
    """Something real that runs in the place of a container."""

    def start(self, pod: Json) -> None:
        """Start what the pod's container is to run."""
        ...

    def poll(self, pod: Json) -> Ending | None:
        """Return the end of the container, once it has ended."""
        ...

    def terminate(self, pod: Json) -> None:
        """Ask it to end, as SIGTERM does."""
        ...

    def kill(self, pod: Json) -> None:
        """End it at once."""
        ...


@dataclass(frozen=True)
class Behaviour:
    """Course of a pod."""

    no_node_message: str = ""
    """Words of the scheduler about a pod that finds no node. A real scheduler finds its own."""
    ending: Ending | None = None
    """End that it comes to by itself, None for one that runs until something ends it."""
    run_seconds: float = 0.0
    """Seconds on the cluster's clock that it runs before."""
    waiting_reason: str = ""
    """Reason for which it never starts: ErrImagePull, CreateContainerConfigError, ContainerCreating."""
    waiting_message: str = ""
    eviction_message: str = ""
    """Message with which the kubelet evicts the pod."""
    refusal_reason: str = ""
    """Reason for which the node does not take the pod."""
    sigterm_ending: Ending | None = Ending(143)
    """End that SIGTERM brings; None if it does not."""
    process: Process | None = None


def run() -> Behaviour:
    """Run until something ends it."""
    return Behaviour()


def exit_with(code: int, message: str = "") -> Behaviour:
    """End with an exit code. message: what the container leaves in /dev/termination-log."""
    return Behaviour(ending=Ending(code, message=message))


def run_out_of_memory() -> Behaviour:
    """End as the kernel ends what takes too much memory."""
    return Behaviour(ending=Ending(137, reason="OOMKilled"))


def find_no_node(message: str) -> Behaviour:
    """Wait for a node until the test says something else, or where the scheduler is real until there is one."""
    return Behaviour(no_node_message=message)


def fail_to_pull(message: str) -> Behaviour:
    """Wait for ever for an image that is not there."""
    return Behaviour(waiting_reason="ErrImagePull", waiting_message=message)


def fail_to_configure(message: str) -> Behaviour:
    """Wait for ever for something that the container needs."""
    return Behaviour(waiting_reason="CreateContainerConfigError", waiting_message=message)


def stay_in_creation(warning: str) -> Behaviour:
    """Wait for ever in ContainerCreating. warning: message of the event FailedMount, the only one that says why."""
    return Behaviour(waiting_reason="ContainerCreating", waiting_message=warning)


def be_evicted() -> Behaviour:
    """Run until the kubelet evicts the pod, which is at once."""
    return Behaviour(eviction_message="The node was low on resource: memory. ")


def be_refused(reason: str) -> Behaviour:
    """Be refused by the node before anything runs."""
    return Behaviour(refusal_reason=reason)


def ignore_sigterm() -> Behaviour:
    """Run until it is killed."""
    return Behaviour(sigterm_ending=None)


def end_on_sigterm(code: int, message: str = "") -> Behaviour:
    """Run until asked to end, and then end with an exit code."""
    return Behaviour(sigterm_ending=Ending(code, message=message))


def run_process(process: Process) -> Behaviour:
    """Run something real."""
    return Behaviour(process=process, sigterm_ending=None)
