"""Machines with networks of their own: network namespaces of Linux, joined by a bridge."""

import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

_numbers = itertools.count()


@dataclass(frozen=True)
class Machines:
    """Network namespaces that reach each other over a bridge, and nothing else."""

    names: list[str]
    addresses: list[str]
    bridge: str

    def make_prefix(self, machine: int) -> list[str]:
        """Return the words before a command that run it on `machine`."""
        return ["ip", "netns", "exec", self.names[machine]]

    def cut(self, machine: int) -> None:
        """Cut the network of `machine`: packets vanish, and no end is told."""
        _run(f"ip link set {self._get_port(machine)} nomaster")

    def heal(self, machine: int) -> None:
        """Undo a cut."""
        _run(f"ip link set {self._get_port(machine)} master {self.bridge}")

    def _get_port(self, machine: int) -> str:
        return f"{self.bridge}p{machine}"


@contextmanager
def make_machines(number: int) -> Iterator[Machines]:
    """Make machines for the block; skip the test where this process may not."""
    # New names every time: the kernel removes interfaces some time after their namespace. At most 15 characters.
    bridge = f"dl{os.getpid() % 10**6}x{next(_numbers) % 100}"
    machines = Machines(
        [f"{bridge}-{machine}" for machine in range(number)],
        [f"10.213.{os.getpid() % 250}.{machine + 1}" for machine in range(number)],
        bridge,
    )
    try:
        try:
            _run(f"ip link add {bridge} type bridge")
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"network namespaces cannot be made here: {error}")
        # No addresses: browsers of other tests end their requests when an interface of the machine gets or loses one.
        _run(f"ip link set {bridge} addrgenmode none")
        _run(f"ip link set {bridge} up")
        for machine, (name, address) in enumerate(zip(machines.names, machines.addresses, strict=True)):
            _run(f"ip netns add {name}")
            _run(f"ip link add {bridge}p{machine} type veth peer name eth0 netns {name}")
            _run(f"ip link set {bridge}p{machine} addrgenmode none")
            _run(f"ip link set {bridge}p{machine} master {bridge} up")
            inside = f"ip -n {name}"
            _run(f"{inside} address add {address}/24 dev eth0")
            _run(f"{inside} link set eth0 up")
            _run(f"{inside} link set lo up")
        yield machines
    finally:
        for machine in range(number):
            subprocess.run(["ip", "link", "del", f"{bridge}p{machine}"], check=False, capture_output=True)
        for name in machines.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True)
