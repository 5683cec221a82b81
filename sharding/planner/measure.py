"""Measurement of this machine: `python -m sharding.planner.measure CORES` prints `Speeds` of `machine.py` as JSON.

A separate process, so that torch and the memory that it allocates are gone when it ends.
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

from hostinfo.fast_exit import skip_last_collection

COPY_BYTES = 2**26
"""Bytes of a copy: more than the caches of a core hold."""
LOOPBACK_BYTES = 2**28
"""Bytes of one transfer over TCP."""
REPETITIONS = 5
NUM_ROWS, NUM_INPUTS, NUM_OUTPUTS = 4096, 512, 512
"""Shape of the matrix product: a chunk, and a layer, of usual sizes."""


def time_fastest(work: Callable[[], object]) -> float:
    """Return the seconds of the fastest repetition: on a shared machine other processes slow the others down."""
    seconds: list[float] = []
    for _ in range(REPETITIONS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def measure_copy_bandwidth(num_threads: int) -> float:
    """Return the bytes read and written per second by `num_threads` threads that copy at the same time."""
    pairs = [
        (ctypes.create_string_buffer(COPY_BYTES), ctypes.create_string_buffer(COPY_BYTES)) for _ in range(num_threads)
    ]

    def copy_all() -> None:
        # memmove releases the interpreter's lock, so that threads copy in parallel.
        threads = [
            threading.Thread(target=ctypes.memmove, args=(target, source, COPY_BYTES)) for target, source in pairs
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return 2 * num_threads * COPY_BYTES / time_fastest(copy_all)


def measure_loopback_bandwidth() -> float:
    """Return the bytes per second over one TCP connection of this machine with itself."""
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

            return LOOPBACK_BYTES / time_fastest(send_all)


def measure_flops() -> tuple[float | None, float | None]:
    """Return the floating-point operations per second of one core in matrix products, in fp32 and in bf16.

    Of torch's two libraries, oneDNN (where torch has it) and MKL, the faster one counts. None without torch.
    """
    if importlib.util.find_spec("torch") is None:
        return None, None
    import torch

    torch.set_num_threads(1)
    onednn = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
    speeds: list[float] = []
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(NUM_ROWS, NUM_INPUTS, dtype=dtype)
        w = torch.randn(NUM_OUTPUTS, NUM_INPUTS, dtype=dtype)
        products = [partial(torch.nn.functional.linear, x, w)]
        # On processors without bf16 instructions oneDNN refuses products in it, and torch has slow ones of its own.
        if onednn is not None and (dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported()):
            products.append(partial(onednn, x, w, None, "none", [], ""))
        # A multiplication and an addition for each weight and row.
        speeds.append(2 * NUM_ROWS * NUM_INPUTS * NUM_OUTPUTS / min(map(time_fastest, products)))
    return speeds[0], speeds[1]


def main() -> None:
    """Write the speeds of this machine to stdout."""
    one_copy = measure_copy_bandwidth(1)
    # All cores together are never slower than one: a lower figure would be a disturbance.
    all_copies = max(one_copy, measure_copy_bandwidth(int(sys.argv[1])))
    flops, flops_bf16 = measure_flops()
    speeds = {
        "one_copy": one_copy,
        "all_copies": all_copies,
        "loopback": measure_loopback_bandwidth(),
        "flops": flops,
        "flops_bf16": flops_bf16,
    }
    print(json.dumps(speeds))  # noqa: T201


if __name__ == "__main__":
    skip_last_collection()
    main()
