"""Measures this machine: `python -m sharding.planner.measure CORES`, one line of JSON, `Speeds` of `machine.py`.

A process of its own: what it allocates, and torch, are gone when it ends.
"""

import ctypes
import importlib.util
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

COPY_BYTES = 2**26
"""Above what a core's cache holds."""
LOOPBACK_BYTES = 2**28
REPETITIONS = 5
ROWS, INPUTS, OUTPUTS = 4096, 512, 512
"""Of the matrix product: a chunk and layers of usual sizes."""


def fastest(work: Callable[[], object]) -> float:
    """Seconds of the fastest of some repetitions: on a shared machine the others tell of somebody else."""
    seconds: list[float] = []
    for _ in range(REPETITIONS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def copy_bandwidth(num_threads: int) -> float:
    """Bytes read and written a second by so many threads that copy at once."""
    pairs = [
        (ctypes.create_string_buffer(COPY_BYTES), ctypes.create_string_buffer(COPY_BYTES)) for _ in range(num_threads)
    ]

    def copy_all() -> None:
        # memmove lets go of the interpreter's lock.
        threads = [threading.Thread(target=ctypes.memmove, args=(to, of, COPY_BYTES)) for to, of in pairs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return 2 * num_threads * COPY_BYTES / fastest(copy_all)


def loopback_bandwidth() -> float:
    """Bytes a second over one TCP connection of this machine with itself."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sender:
        receiver, _ = server.accept()
        with receiver:
            data, buffer = bytes(2**20), bytearray(2**20)

            def receive() -> None:
                left = LOOPBACK_BYTES
                while left:
                    left -= receiver.recv_into(buffer, min(left, len(buffer)))

            def send_all() -> None:
                thread = threading.Thread(target=receive)
                thread.start()
                for _ in range(LOOPBACK_BYTES // len(data)):
                    sender.sendall(data)
                thread.join()

            return LOOPBACK_BYTES / fastest(send_all)


def dense_flops() -> tuple[float | None, float | None]:
    """Floating-point operations a second of one core in matrix products, in fp32 and bf16, through whichever library of
    torch is faster: oneDNN, where it is there, or MKL."""
    if importlib.util.find_spec("torch") is None:
        return None, None
    import torch

    torch.set_num_threads(1)
    onednn = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
    found: list[float] = []
    for dtype in (torch.float32, torch.bfloat16):
        x, w = torch.randn(ROWS, INPUTS, dtype=dtype), torch.randn(OUTPUTS, INPUTS, dtype=dtype)

        ways = [partial(torch.nn.functional.linear, x, w)]
        ways += [partial(onednn, x, w, None, "none", [], "")] if onednn is not None else []
        found.append(2 * ROWS * INPUTS * OUTPUTS / min(fastest(way) for way in ways))
    return found[0], found[1]


def main() -> None:
    one_copy = copy_bandwidth(1)
    all_copies = max(one_copy, copy_bandwidth(int(sys.argv[1])))
    flops, flops_bf16 = dense_flops()
    found = {
        "one_copy": one_copy,
        "all_copies": all_copies,
        "loopback": loopback_bandwidth(),
        "flops": flops,
        "flops_bf16": flops_bf16,
    }
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main()
