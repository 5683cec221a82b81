"""Ranks that are started once for each world size and run the function of one test after another."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

import cloudpickle

if TYPE_CHECKING:
    from sharding.comm.process_groups import Ranks

P = ParamSpec("P")
T = TypeVar("T")

SERVER = Path(__file__).with_name("server.py")
ROOT = SERVER.parents[2]


class RankError(AssertionError):
    """Failure of a function on a rank, with the traceback of that rank."""


class RankPool:
    """The ranks of one gloo process group."""

    def __init__(self, connections: list[Connection]) -> None:
        self._connections = connections
        self.is_closed = False

    def run(self, function: "Callable[Concatenate[Ranks, P], T]", *arguments: P.args, **named: P.kwargs) -> list[T]:
        """Return the results of `function(ranks, *arguments, **named)` on every rank, by rank.

        Raises RankError where it failed on one.
        """
        cloudpickle.register_pickle_by_value(sys.modules[function.__module__])
        message = cloudpickle.dumps((function, arguments, named))
        for connection in self._connections:
            connection.send_bytes(message)
        answers: dict[int, Any] = {}
        while len(answers) < len(self._connections):
            missing = {connection: rank for rank, connection in enumerate(self._connections) if rank not in answers}
            for connection in wait(list(missing)):
                rank = missing[cast("Connection", connection)]
                is_good, answers[rank] = self._receive(rank)
                if not is_good:
                    # The others may wait for it in a collective, for ever: none of these ranks serves again.
                    self.close()
                    raise RankError(f"rank {rank}:\n{answers[rank]}")
        return [answers[rank] for rank in range(len(self._connections))]

    def _receive(self, rank: int) -> tuple[bool, Any]:
        try:
            return cloudpickle.loads(self._connections[rank].recv_bytes())
        except EOFError:
            return False, "this rank is gone"

    def close(self) -> None:
        self.is_closed = True
        for connection in self._connections:
            connection.close()


class RankPools:
    """Pools by world size, each started at its first use."""

    def __init__(self, *preload: str) -> None:
        """Start nothing yet. preload: modules that all ranks share already imported, so that they start fast."""
        self._preload = preload
        self._directory = tempfile.TemporaryDirectory()
        self._listener = Listener(str(Path(self._directory.name) / "listener"))
        self._server: subprocess.Popen[str] | None = None
        self._pools: dict[int, RankPool] = {}
        self._num_started = 0

    def of(self, world_size: int) -> RankPool:
        if world_size not in self._pools or self._pools[world_size].is_closed:
            self._pools[world_size] = self._start(world_size)
        return self._pools[world_size]

    def _start(self, world_size: int) -> RankPool:
        if self._server is None:
            command = [sys.executable, str(SERVER), str(self._listener.address), *self._preload]
            environment = os.environ | {"PYTHONPATH": str(ROOT)}
            self._server = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=environment)
        assert self._server.stdin is not None
        self._num_started += 1
        rendezvous_file = Path(self._directory.name) / f"rendezvous-{self._num_started}"
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
            self._server.kill()
            self._server.wait()
        self._listener.close()
        self._directory.cleanup()
