"""Machines with networks of their own: network namespaces of Linux, joined by a bridge."""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.network_namespaces import add_bridge, add_namespace, remove_bridge, remove_namespace, run_ip

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
        run_ip(f"link set {self._get_port(machine)} nomaster")

    def heal(self, machine: int) -> None:
        """Undo a cut."""
        run_ip(f"link set {self._get_port(machine)} master {self.bridge}")

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
        add_bridge(bridge)
        run_ip(f"link set {bridge} up")
        for machine, (name, address) in enumerate(zip(machines.names, machines.addresses, strict=True)):
            add_namespace(name, bridge, f"{bridge}p{machine}", address)
        yield machines
    finally:
        for machine, name in enumerate(machines.names):
            remove_namespace(name, f"{bridge}p{machine}")
        remove_bridge(bridge)
