"""Ranks that import what they need while the rows are prepared, and wait for torch's elastic launch to start them."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from dlrm.config import ResolvedJob
from dlrm.record import RunDirectory
from hostinfo.child import make_child_command

WORKER = "dlrm.train.worker"
PROGRAM_BYTES = 256 << 20
"""Memory of a rank that waits, at most."""
MAX_MEMORY_SHARE = 0.25
"""Share of the job's memory that ranks may take while they wait: the preparation of rows needs the rest."""


class StandbyRanks:
    """The waiting ranks of this node; none if the job has too little memory for them."""

    def __init__(
        self, directory: RunDirectory, number: int, resolved: ResolvedJob, ranks: range, *, is_later_round: bool = False
    ) -> None:
        """Start the processes of `ranks` for attempt `number`. On the thread that will wait for their end.

        is_later_round: whether the attempt has had ranks before, on fewer rows.
        """
        resources = resolved.job.resources
        later = ["--later-round"] if is_later_round else []
        self.arguments = [str(directory.path), "--attempt", str(number), *later]
        self._waiting: dict[int, subprocess.Popen[bytes]] = {}
        if len(ranks) * PROGRAM_BYTES > MAX_MEMORY_SHARE * resources.memory:
            return
        command = make_child_command(WORKER, [*self.arguments, "--wait"])
        for local_rank, rank in enumerate(ranks):
            variables = {
                "RANK": str(rank),
                "LOCAL_RANK": str(local_rank),
                "OMP_NUM_THREADS": str(resources.threads_per_worker),
            }
            self._waiting[local_rank] = subprocess.Popen(
                command, env={**os.environ, **variables}, stdin=subprocess.PIPE, start_new_session=True
            )

    @contextmanager
    def serve_elastic(self) -> Iterator[None]:
        """Let torch's elastic launch take the waiting ranks during the block, in place of starting new ones."""
        from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

        take, start = self._take, SubprocessHandler._popen

        def take_or_start(self: SubprocessHandler, args: tuple[str, ...], env: dict[str, str]) -> subprocess.Popen[Any]:
            return take(self.local_rank_id, env) or start(self, args, env)

        SubprocessHandler._popen = take_or_start
        try:
            yield
        finally:
            SubprocessHandler._popen = start

    def close(self) -> None:
        """End the ranks that still wait: the attempt ends before its ranks begin."""
        while self._waiting:
            _, process = self._waiting.popitem()
            process.kill()
            process.wait()

    def _take(self, local_rank: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
        """Let a waiting rank begin, with the environment of its attempt; None if there is none.

        One that has died meanwhile is taken too: elastic then sees its exit code.
        """
        process = self._waiting.pop(local_rank, None)
        if process is not None and process.stdin is not None:
            with suppress(OSError):
                process.stdin.write(json.dumps(dict(environment)).encode() + b"\n")
                process.stdin.close()
        return process
