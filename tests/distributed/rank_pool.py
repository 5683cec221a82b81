"""Ranks that are started once for each world size and run one test's function after another."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

import cloudpickle

SERVER = Path(__file__).with_name("rank_server.py")


class RankError(AssertionError):
    """A function failed on a rank; carries that rank's traceback."""


class RankPool:
    """All ranks of one gloo process group."""

    def __init__(self, connections: list[Connection]) -> None:
        self._connections = connections

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Results of `function(ranks, *arguments)` on every rank, by rank. Raises RankError where one failed."""
        cloudpickle.register_pickle_by_value(sys.modules[function.__module__])
        message = cloudpickle.dumps((function, arguments))
        for connection in self._connections:
            connection.send_bytes(message)
        answers = [cloudpickle.loads(connection.recv_bytes()) for connection in self._connections]
        failures = [f"rank {rank}:\n{answer}" for rank, (is_good, answer) in enumerate(answers) if not is_good]
        if failures:
            raise RankError("\n".join(failures))
        return [answer for _, answer in answers]

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


class RankPools:
    """Pools by world size, each started when first asked for."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._listener = Listener(str(Path(self._directory.name) / "listener"))
        self._server: subprocess.Popen[str] | None = None
        self._pools: dict[int, RankPool] = {}

    def of(self, world_size: int) -> RankPool:
        if world_size not in self._pools:
            self._pools[world_size] = self._start(world_size)
        return self._pools[world_size]

    def _start(self, world_size: int) -> RankPool:
        if self._server is None:
            command = [sys.executable, str(SERVER), str(self._listener.address)]
            environment = os.environ | {"PYTHONPATH": str(SERVER.parents[2])}
            self._server = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=environment)
        assert self._server.stdin is not None
        rendezvous_file = Path(self._directory.name) / f"rendezvous-{world_size}"
        self._server.stdin.write(f"{world_size} {rendezvous_file}\n")
        self._server.stdin.flush()
        by_rank: dict[int, Connection] = {}
        while len(by_rank) < world_size:
            connection = self._listener.accept()
            by_rank[connection.recv()] = connection
        return RankPool([by_rank[rank] for rank in range(world_size)])

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        if self._server is not None and self._server.stdin is not None:
            self._server.stdin.close()
            self._server.wait(timeout=60)
        self._listener.close()
        self._directory.cleanup()
