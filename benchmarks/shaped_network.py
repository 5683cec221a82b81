"""A network of machines with a given bandwidth and latency, on one Linux machine, for benchmarks.

Every machine is a network namespace with one TUN device. A router, a process of its own, reads the packets of all
devices and hands each one to its receiver when a link of that bandwidth and latency would have. No kernel module is
needed (netem often is not there), but root, and one core's time: at 1 Gbit/s about a tenth.
"""

import ctypes
import fcntl
import heapq
import multiprocessing
import os
import select
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

MTU = 65_000
"""Bytes of a packet at most: few large packets cost the router least."""
MAX_AT_ONCE = 32
"""Packets read from one device before the others get their turn."""
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
DEVICE = "tun0"
"""Network device of every machine."""


@dataclass(frozen=True)
class Link:
    """A full-duplex link of every machine to a switch that is never the narrow place."""

    gigabits_per_second: float
    round_trip_ms: float
    """Milliseconds from one machine to another and back, as `ping` shows them."""

    @property
    def bytes_per_second(self) -> float:
        return self.gigabits_per_second * 1e9 / 8

    @property
    def name(self) -> str:
        return f"{self.gigabits_per_second:g} Gbit/s, {self.round_trip_ms:g} ms"


@dataclass(frozen=True)
class ShapedMachine:
    """A machine of the network."""

    namespace: str
    address: str

    @property
    def prefix(self) -> list[str]:
        """Words before a command that run it on this machine."""
        return ["ip", "netns", "exec", self.namespace]


@contextmanager
def shaped_machines(number: int, link: Link) -> Iterator[list[ShapedMachine]]:
    """Make machines for the block. Raises OSError or CalledProcessError if this process may not."""
    names = [f"dlrm-{os.getpid()}-{machine}" for machine in range(number)]
    machines = [ShapedMachine(name, f"10.214.0.{machine + 1}") for machine, name in enumerate(names)]
    try:
        for machine in machines:
            _run(f"ip netns add {machine.namespace}")
        context = multiprocessing.get_context("spawn")
        is_ready, theirs = context.Pipe()
        router = context.Process(target=_route, args=(machines, link, theirs), daemon=True)
        router.start()
        theirs.close()
        try:
            is_ready.recv()
            yield machines
        finally:
            router.terminate()
            router.join()
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _route(machines: Sequence[ShapedMachine], link: Link, is_ready: Connection) -> None:
    """Route packets until this process is ended."""
    devices = [_open_device(machine) for machine in machines]
    receivers = {socket.inet_aton(machine.address): number for number, machine in enumerate(machines)}
    is_ready.send("ready")
    delay, bandwidth = link.round_trip_ms / 2e3, link.bytes_per_second
    sent_at, received_at = [0.0] * len(machines), [0.0] * len(machines)
    due: list[tuple[float, int, int, bytes]] = []
    num_packets = 0
    while True:
        timeout = None if not due else max(0.0, due[0][0] - time.monotonic())
        readable, _, _ = select.select(devices, [], [], timeout)
        now = time.monotonic()
        for device in readable:
            source = devices.index(device)
            for packet in _read_packets(device):
                receiver = receivers.get(packet[16:20])
                if receiver is None:
                    continue
                seconds = len(packet) / bandwidth
                # It leaves when its sender's link has sent those before it, and has arrived when the receiver's has.
                sent_at[source] = max(now, sent_at[source]) + seconds
                received_at[receiver] = max(sent_at[source], received_at[receiver] + seconds)
                num_packets += 1
                heapq.heappush(due, (received_at[receiver] + delay, num_packets, receiver, packet))
        now = time.monotonic()
        while due and due[0][0] <= now:
            _, _, receiver, packet = heapq.heappop(due)
            os.write(devices[receiver], packet)


def _read_packets(device: int) -> Iterator[bytes]:
    for _ in range(MAX_AT_ONCE):
        try:
            packet = os.read(device, MTU + 64)
        except BlockingIOError:
            return
        # Only IPv4 is routed.
        if packet[0] >> 4 == 4:
            yield packet


def _open_device(machine: ShapedMachine) -> int:
    """Make the TUN device of a machine, and return it as a file of this process."""
    with Path("/proc/self/ns/net").open() as own:
        enter(machine)
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
        _run(f"ip address add {machine.address}/24 dev {DEVICE}")
        _run(f"ip link set {DEVICE} mtu {MTU} txqueuelen 10000 up")
        _run("ip link set lo up")
        # Buffers of a connection as large as bandwidth times round trip.
        for name in ("tcp_rmem", "tcp_wmem"):
            Path(f"/proc/sys/net/ipv4/{name}").write_text("4096 262144 33554432")
        _set_namespace(own.fileno())
    return device


def enter(machine: ShapedMachine) -> None:
    """Move this process to the network of a machine."""
    with Path(f"/run/netns/{machine.namespace}").open() as namespace:
        _set_namespace(namespace.fileno())


def _set_namespace(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True)
