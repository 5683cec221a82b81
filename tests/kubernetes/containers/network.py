"""Network of pods: each has a namespace with an address of its own on a bridge, on which the service has one too."""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.network_namespaces import add_bridge, add_namespace, remove_bridge, remove_namespace, run_ip

_numbers = itertools.count()


@dataclass(frozen=True)
class Attachment:
    """Network namespace of a pod, and its address."""

    namespace: str
    address: str

    @property
    def path(self) -> str:
        return f"/run/netns/{self.namespace}"


@dataclass
class PodNetwork:
    """Bridge that joins pods and the service, and nothing else."""

    bridge: str
    prefix: str
    """First three numbers of all addresses."""
    attachments: dict[str, Attachment] = field(default_factory=dict[str, Attachment])
    """Attachments by the uid of their pods."""
    _count: Iterator[int] = field(default_factory=lambda: itertools.count(2))

    @property
    def host_address(self) -> str:
        """Address of the service."""
        return f"{self.prefix}.1"

    def attach(self, uid: str) -> Attachment:
        """Make the network namespace of a pod."""
        # A number is given once: nothing that is known of an earlier pod leads to a later one.
        number = next(self._count)
        namespace, port = f"{self.bridge}-{number}", f"{self.bridge}p{number}"
        made = Attachment(namespace, f"{self.prefix}.{number}")
        self.attachments[uid] = made
        add_namespace(namespace, self.bridge, port, made.address)
        return made

    def detach(self, uid: str) -> None:
        """Remove the network namespace of a pod."""
        found = self.attachments.pop(uid)
        remove_namespace(found.namespace, f"{self.bridge}p{found.address.rpartition('.')[2]}")


@contextmanager
def make_network() -> Iterator[PodNetwork]:
    """Make a network for the block; skip the test where this process may not."""
    # New names every time: the kernel removes interfaces some time after their namespace. At most 15 characters.
    bridge = f"po{os.getpid() % 10**6}x{next(_numbers) % 100}"
    # Of 198.18.0.0/15, which is for tests of networks; other processes take other parts of it.
    half, part = divmod(os.getpid() % 500, 250)
    network = PodNetwork(bridge, f"198.{18 + half}.{part}")
    try:
        add_bridge(bridge)
        # Otherwise it has the lowest address of its ports: with a pod that goes it would change, and the others would
        # not reach the service until they ask for it again.
        run_ip(f"link set {bridge} address 02:00:00:00:00:01 up")
        # Routes alone, which make the address one of this machine too.
        run_ip(f"route add local {network.host_address} dev {bridge}")
        run_ip(f"route add {network.prefix}.0/24 dev {bridge} src {network.host_address}")
        yield network
    finally:
        for uid in list(network.attachments):
            network.detach(uid)
        remove_bridge(bridge)
