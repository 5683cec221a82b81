"""Reasons for a job's state, and the parts of the service that act on jobs: words that programs may rely on."""

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
