"""Reasons for a job's state, and the parts of the service that act on jobs: words that programs may rely on."""

from collections.abc import Mapping
from enum import StrEnum


class Reason(StrEnum):
    # Reasons why a job waits.
    SUBMITTED = "submitted"
    WAITING_FOR_CPU = "waiting_for_cpu"
    WAITING_FOR_MEMORY = "waiting_for_memory"
    WAITING_FOR_GPU = "waiting_for_gpu"
    BEHIND_RESERVATION = "behind_reservation"
    QUOTA_EXCEEDED = "quota_exceeded"
    UNSCHEDULABLE = "unschedulable"
    HELD = "held"
    RELEASED = "released"
    # Reason of an event that changes no state.
    EDITED = "edited"
    # Reasons why a job starts or waits again.
    SCHEDULED = "scheduled"
    PROCESS_STARTED = "process_started"
    RESTARTING = "restarting"
    RESUMED = "resumed"
    # Reason why nothing is known of a job that runs.
    UNSEEN = "unseen"
    # Reasons why an attempt or a job ended: those of `dlrm.record.EndReason`, then those of the service.
    COMPLETED = "completed"
    TARGET_REACHED = "target_reached"
    NO_IMPROVEMENT = "no_improvement"
    STOP_REQUESTED = "stop_requested"
    BAD_INPUT = "bad_input"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    WORKER_CRASHED = "worker_crashed"
    PEER_SILENT = "peer_silent"
    RUN_IN_USE = "run_in_use"
    USER_PAUSED = "user_paused"
    USER_CANCELLED = "user_cancelled"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CANNOT_FIT = "cannot_fit"
    LAUNCH_FAILED = "launch_failed"
    IMAGE_PULL = "image_pull"
    EVICTED = "evicted"
    PREEMPTED = "preempted"
    NODE_LOST = "node_lost"
    LOST = "lost"
    INTERNAL_ERROR = "internal_error"


SCHEDULER, RECONCILER, TRAINER = "scheduler", "reconciler", "trainer"
PARTS = frozenset({SCHEDULER, RECONCILER, TRAINER})
"""Names that no owner of keys may have: what he does would look as if the service had done it."""


ADVICE: Mapping[Reason, str] = {
    Reason.UNSCHEDULABLE: "Ask for less per machine (resources.workers_per_node, resources.memory), or add a larger "
    "machine. Other jobs pass this one until it fits.",
    Reason.QUOTA_EXCEEDED: "It goes on when other jobs of its owner end. Cancel or pause one of them, ask for fewer "
    "cores or less memory, or have an admin raise the quota.",
    Reason.HELD: "Release it, and it starts when its turn comes.",
    Reason.UNSEEN: "Nothing is known of it until its machine or cluster answers again. Look at that machine. A job "
    "that cannot come back can be cancelled.",
    Reason.STOP_REQUESTED: "Something outside the service stopped it, such as the shutdown of its machine. It "
    "continues from its last checkpoint by itself.",
    Reason.BAD_INPUT: "Correct what the message names: a file where it is, then restart the job; a field by clone and "
    "edit. Another try as it is would end in the same way.",
    Reason.DIVERGED: "Clone and edit with lower learning rates, as What to change says, or a longer warm-up "
    "(dense_optimizer.schedule). The loss under Curves shows when it began.",
    Reason.OUT_OF_MEMORY: "Clone and edit with more resources.memory, or ask for less: fewer workers_per_node, a "
    "smaller model.embedding_dim, or a smaller batch.",
    Reason.WORKER_CRASHED: "Read the last lines of the log. If it was killed (SIGKILL), the machine was short of "
    "memory: ask for more, or use fewer workers. Otherwise restart the job, and see whether the fault comes again.",
    Reason.PEER_SILENT: "A rank gave no sign of life. Look at its log and its machine: it may be overloaded, swapping "
    "or cut off. If steps are simply long, raise run.peer_timeout_seconds.",
    Reason.RUN_IN_USE: "An earlier attempt still works on the run. End the process that the message names, or wait: it "
    "is tried again until that one has ended.",
    Reason.USER_PAUSED: "Resume it, and it continues from its checkpoint.",
    Reason.USER_CANCELLED: "Restart runs its document anew from the beginning.",
    Reason.DEADLINE_EXCEEDED: "Clone and edit with a longer deadline_seconds or more workers, or shorten the run: "
    "fewer run.epochs, or fewer rows.",
    Reason.CANNOT_FIT: "Clone and edit with fewer cores or less memory than the machine has: the message says how much "
    "that is.",
    Reason.LAUNCH_FAILED: "Its processes could not be started: the message says why. Correct that on the machine or "
    "the cluster, then restart the job.",
    Reason.IMAGE_PULL: "Check the name of the image and the right to pull it (the service's image, or "
    "resources.kubernetes in the document), then restart the job.",
    Reason.EVICTED: "Its cluster took its machine away. It continues from its last checkpoint by itself; ask for the "
    "memory that it really uses if that happens again.",
    Reason.PREEMPTED: "The cluster gave its machine to work of higher priority. It continues from its last checkpoint "
    "by itself; a higher priority class prevents that.",
    Reason.NODE_LOST: "Its machine is gone. It continues from its last checkpoint on another one.",
    Reason.LOST: "Somebody or something deleted its pods. It continues from its last checkpoint by itself.",
    Reason.INTERNAL_ERROR: "The service itself failed while it looked after this job. Restart the job; if that happens "
    "again, give the message and the service's log to whoever runs it.",
}
"""Sentences on what to do about a job that has stopped or waits, by the reason; success needs none."""
