"""Imports what every rank needs once, then forks the ranks that the tests ask for.

Run as a program. Its arguments are the address of the pool's listener and the modules to import. Each line on its
standard input has the number of ranks to start and their rendezvous file; each rank connects to the listener and runs
the functions that it is sent.
"""

import ctypes
import importlib
import os
import signal
import sys
import traceback
from multiprocessing.connection import Client, Connection

import cloudpickle


def serve(connection: Connection, rank: int, world_size: int, rendezvous_file: str) -> None:
    import torch
    import torch.distributed as dist

    from sharding.comm.process_groups import make_ranks

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous_file}", rank=rank, world_size=world_size)
    ranks = make_ranks(torch.device("cpu"))
    while True:
        try:
            function, arguments, named = cloudpickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        try:
            answer = (True, function(ranks, *arguments, **named))
        except Exception:
            answer = (False, traceback.format_exc())
        connection.send_bytes(cloudpickle.dumps(answer))


def _end_with(parent: int) -> None:
    """End when the server does, also in a collective that never returns."""
    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    address, *preload = sys.argv[1:]
    # They must not start threads, as polars does: those would be missing in the ranks.
    for module in preload:
        importlib.import_module(module)
    for line in sys.stdin:
        world_size, rendezvous_file = line.split()
        server = os.getpid()
        for rank in range(int(world_size)):
            if os.fork() == 0:
                _end_with(server)
                with Client(address) as connection:
                    connection.send(rank)
                    serve(connection, rank, int(world_size), rendezvous_file)
                os._exit(0)


if __name__ == "__main__":
    main()
