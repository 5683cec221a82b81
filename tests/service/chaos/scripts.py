"""Scripts of the jobs: what the trainer does, what the client does meanwhile, and how the job must end."""

import random
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.service.api import make_document

Action = Literal["wait", "cancel", "cancel at once", "pause"]
REAL: dict[str, Any] = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 30_000, "num_ids": 500}},
    "model": {"embedding_dim": 8, "bottom_mlp": [16, 8], "top_mlp": [16, 1]},
    "batch": {"global_size": 2048},
    "dense_optimizer": {"name": "adam", "learning_rate": 0.001},
    "run": {"epochs": 4, "yardsticks": "none", "checkpoint_every_seconds": 1.0},
    "resources": {"workers_per_node": 1, "memory": "2GiB"},
}
"""A training of half a minute, most of which is the start."""


@dataclass(frozen=True)
class Script:
    """Script of one job."""

    behaviour: str
    """Name of a behaviour of the trainer; `real` is the real trainer."""
    state: str
    """State in which the job must end."""
    reason: str
    action: Action = "wait"
    changes: dict[str, Any] = field(default_factory=dict[str, Any])
    """Changes of the smallest document."""
    number: int = 0

    def make_document(self) -> dict[str, Any]:
        labels = {"behaviour": self.behaviour, "number": str(self.number)}
        return make_document(
            **{"max_restarts": 50, "name": self.behaviour.replace("_", "-"), **self.changes, "labels": labels}
        )


KINDS: list[tuple[int, Script]] = [
    (9, Script("train", "SUCCEEDED", "completed")),
    (8, Script("crash_then_train", "SUCCEEDED", "completed")),
    (5, Script("crash", "FAILED", "worker_crashed", changes={"max_restarts": 1})),
    (3, Script("bad_input", "FAILED", "bad_input")),
    (8, Script("wait_for_pause", "SUCCEEDED", "completed", "pause")),
    (6, Script("wait", "CANCELLED", "user_cancelled", "cancel")),
    (4, Script("wait", "CANCELLED", "user_cancelled", "cancel at once")),
    (3, Script("stop_slowly", "CANCELLED", "user_cancelled", "cancel")),
    (3, Script("hang", "CANCELLED", "user_cancelled", "cancel")),
    (3, Script("wait", "FAILED", "deadline_exceeded", changes={"deadline_seconds": 6})),
    (2, Script("leave_a_rank", "SUCCEEDED", "completed")),
    (6, Script("real", "SUCCEEDED", "completed", changes=REAL)),
]
NUM_JOBS = sum(number for number, _ in KINDS)


def make_scripts(chance: random.Random) -> list[Script]:
    """Make the scripts of all jobs, in random order and numbered."""
    scripts = [script for number, script in KINDS for _ in range(number)]
    chance.shuffle(scripts)
    return [
        Script(script.behaviour, script.state, script.reason, script.action, script.changes, number)
        for number, script in enumerate(scripts)
    ]
