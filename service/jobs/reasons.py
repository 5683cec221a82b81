"""Why a job waits and why it ended, as words that programs may rely on."""

from enum import StrEnum


class Reason(StrEnum):
    # Why it waits.
    SUBMITTED = "submitted"
    WAITING_FOR_CPU = "waiting_for_cpu"
    WAITING_FOR_MEMORY = "waiting_for_memory"
    WAITING_FOR_GPU = "waiting_for_gpu"
    BEHIND_RESERVATION = "behind_reservation"
    # Why it moves.
    SCHEDULED = "scheduled"
    PROCESS_STARTED = "process_started"
    RESTARTING = "restarting"
    RESUMED = "resumed"
    # Why it ended; what `dlrm.record.EndReason` says, and what the service adds.
    COMPLETED = "completed"
    TARGET_REACHED = "target_reached"
    STOP_REQUESTED = "stop_requested"
    BAD_INPUT = "bad_input"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    WORKER_CRASHED = "worker_crashed"
    USER_PAUSED = "user_paused"
    USER_CANCELLED = "user_cancelled"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CANNOT_FIT = "cannot_fit"
    LAUNCH_FAILED = "launch_failed"
