"""The group of launch processes of one attempt: each sends its state to all others, several times a second.

The states travel through torch's TCPStore, which node 0 serves at the address of the rendezvous. A call of the store
may wait for ever where the network is cut, so one thread makes all of them, and nothing waits for that thread: whoever
is not heard of any more counts as lost.
"""

import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psutil

from dlrm.launch.nodes.state import NodeState
from hostinfo.node_place import NodePlace

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

BEAT_SECONDS = 0.3
"""Seconds between two exchanges of states."""
JOIN_TIMEOUT_SECONDS = 900.0
"""Longest wait for all nodes to join: on a cluster they may be started minutes apart."""
LEAVE_SECONDS = 5.0
"""Longest wait until the last state of this node is sent."""
LEAVE_LOST_SECONDS = 1.0
"""The same once a node was lost, perhaps the one to which it is sent."""
MAX_PAUSE_SECONDS = 5.0
"""Seconds between two looks after which this process itself must have been stopped."""
NODE_KEY = "dlrm/node"


@dataclass(frozen=True)
class LostNode:
    """A node that has gone without a word, or cannot be reached."""

    node: int
    host: str
    """Name of the machine; empty if the node has never sent it."""
    message: str
    """Description of what was noticed, to follow the name of the node."""

    def describe(self) -> str:
        return f"node {self.node}{self.host and f' ({self.host})'} {self.message}"


@dataclass
class _Seen:
    """Last state of a node, and when its beat last grew."""

    state: NodeState
    at: float


class NodeGroup:
    """The nodes of one attempt, seen from one of them."""

    def __init__(self, place: NodePlace, own: NodeState, num_nodes: int | None) -> None:
        """Begin with this node's state. num_nodes: known on node 0; the others learn it from its announcement."""
        self.place = place
        self._own = own
        self._claim = uuid.uuid4().hex
        self._has_joined = place.node == 0
        self._looked_at = time.monotonic()
        self.num_nodes = num_nodes
        """Number of nodes that may join; None until node 0 has announced it."""
        self._seen: dict[int, _Seen] = {}
        self._given_up: LostNode | None = None
        self._exchanged_at = time.monotonic()
        self.broken: str | None = None
        """Reason why there is no connection to node 0 any more; None while there is one."""
        # Reentrant: conditions look at `states`.
        self._changed = threading.Condition()
        self._is_closing = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nodes", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def states(self) -> dict[int, NodeState]:
        """Last known state by node; nodes that have not joined yet are missing, and this one before `join`.

        Of this node it is the present state, whether or not it could be sent.
        """
        with self._changed:
            states = {node: seen.state for node, seen in self._seen.items()}
            return states | {self.place.node: self._own} if self._has_joined else states

    def join(self) -> None:
        """Send this node's state from now on; before, it only reads the states of the others."""
        self._has_joined = True
        self._wake.set()

    @property
    def members(self) -> list[int] | None:
        """Nodes that run the attempt, in the order of their ranks; None until node 0 has announced it."""
        zero = self.states.get(0)
        return zero.announcement.members if zero is not None and zero.announcement is not None else None

    @property
    def index(self) -> int | None:
        """Place of this node among those that run the attempt; None if it is not needed, or not decided yet."""
        members = self.members or []
        return members.index(self.place.node) if self.place.node in members else None

    @property
    def is_complete(self) -> bool:
        """Whether it is decided which nodes run the attempt, and all of them are known here."""
        return self.members is not None and set(self.members) <= set(self.states)

    def update(self, **changes: Any) -> None:
        """Change this node's state, and send it at once."""
        with self._changed:
            self._own = self._own.model_copy(update=changes)
        self._wake.set()

    def wait_for(self, condition: Callable[[dict[int, NodeState]], bool], timeout_seconds: float) -> bool:
        """Wait until the states fulfil `condition`, or some time is over. Return whether they do."""
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while not condition(self.states):
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def give_up(self, lost: LostNode) -> None:
        """Count a node as lost from now on, whatever it does: the attempt ends without it."""
        self._given_up = lost

    def list_lost(self, timeout_seconds: float) -> list[LostNode]:
        """List the nodes that have been silent for more than `timeout_seconds`, or have cut the connection.

        Nodes that have left in order are not lost, and neither are nodes without a part in the attempt. This node is
        lost if it is node 0 and can itself not reach the store any more. A node that was given up stays lost.
        """
        if self._given_up is not None:
            return [self._given_up]
        members = self.members
        with self._changed:
            now = time.monotonic()
            if now - self._looked_at > MAX_PAUSE_SECONDS:
                # This process itself was stopped, perhaps with all others: it knows nothing of that time.
                self._exchanged_at = now
                for seen in self._seen.values():
                    seen.at = now
            self._looked_at = now
            zero = self._seen.get(0)
            host = zero.state.host if zero is not None else self.place.host
            # Everything travels over node 0: where it cannot be reached, nothing is known of the others.
            if self.broken is not None:
                return [LostNode(0, host, f"cannot be reached: {self.broken}")]
            if now - self._exchanged_at > timeout_seconds:
                return [LostNode(0, host, _describe_silence(now - self._exchanged_at))]
            return [
                LostNode(node, seen.state.host, _describe_silence(now - seen.at))
                for node, seen in self._seen.items()
                if node != self.place.node
                and (members is None or node in members)
                and not (seen.state.is_leaving and (seen.state.result or seen.state.final))
                and now - seen.at > timeout_seconds
            ]

    def find_failed(self) -> int | None:
        """Return another node whose part of the attempt has ended without success; None if absent."""
        return next((node for node, state in self.states.items() if node != self.place.node and state.has_failed), None)

    def find_interface(self) -> str | None:
        """Return the network interface by which this node reaches the others; None if that is not known."""
        # Node 0 may know itself by an address of its own loopback, as Debian's /etc/hosts has it.
        peer = next((state.address for node, state in self.states.items() if node in (self.members or [])[1:]), "")
        host = self.place.host if self.place.node != 0 else peer
        return _name_interface(find_own_address(host, self.place.port)) if host else None

    def leave(self) -> None:
        """Report to the others that nothing more comes from here, and stop to exchange states."""
        self.update(is_leaving=True)
        self._is_closing.set()
        # Not for ever: the call of the store may, and does where the network is cut.
        self._thread.join(timeout=LEAVE_SECONDS if self._given_up is None else LEAVE_LOST_SECONDS)

    def _run(self) -> None:
        try:
            store = self._open_store()
            self._exchanged_at = time.monotonic()
            is_last = False
            while not is_last:
                is_last = self._is_closing.is_set()
                self._exchange(store)
                self._wake.wait(BEAT_SECONDS)
                self._wake.clear()
        except Exception as error:
            with self._changed:
                self.broken = " ".join(str(error).split())[:300] or type(error).__name__
                self._changed.notify_all()

    def _open_store(self) -> "TCPStore":
        # Imported late: importing torch takes seconds.
        from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

        # The store that the ranks meet in is another one in the same server, which node 0 therefore shares.
        return TCPStore(
            self.place.host,
            self.place.port,
            is_master=self.place.node == 0,
            timeout=timedelta(seconds=JOIN_TIMEOUT_SECONDS),
            wait_for_workers=False,
            multi_tenant=True,
        )

    def _check_claim(self, store: "TCPStore") -> None:
        """Claim this node's number, once. Raises NumberTakenError if another process has it."""
        if not self._claim:
            return
        holder = store.compare_set(f"{NODE_KEY}/{self.place.node}/claim", "", self._claim)
        if holder.decode() != self._claim:
            raise NumberTakenError(f"another process has joined as node {self.place.node} already")
        self._claim = ""

    def _exchange(self, store: "TCPStore") -> None:
        with self._changed:
            self._own = self._own.model_copy(update={"beat": self._own.beat + 1})
            own = self._own
        if self._has_joined:
            self._check_claim(store)
            store.set(f"{NODE_KEY}/{self.place.node}", own.model_dump_json(by_alias=True))
        # The store waits for keys that are missing: nodes that have not joined are left out.
        keys = {node: f"{NODE_KEY}/{node}" for node in range(self.num_nodes or 1)}
        nodes = [node for node, key in keys.items() if node in self._seen or store.check([key])]
        texts = store.multi_get([keys[node] for node in nodes])
        with self._changed:
            self._exchanged_at = time.monotonic()
            for node, text in zip(nodes, texts, strict=True):
                state = NodeState.model_validate_json(text)
                before = self._seen.get(node)
                if before is None or before.state.beat != state.beat:
                    self._seen[node] = _Seen(state, self._exchanged_at)
            if (zero := self._seen.get(0)) is not None and zero.state.announcement is not None:
                self.num_nodes = zero.state.announcement.num_nodes
            self._changed.notify_all()


class NumberTakenError(RuntimeError):
    """Error of a second process that joins with the number of another one."""


def get_index(group: NodeGroup) -> int:
    """Return the place of this node, one of those that run the attempt."""
    assert group.index is not None, "nodes that are not needed run nothing"
    return group.index


def _describe_silence(seconds: float) -> str:
    return f"gave no sign of life for {seconds:.0f} s: it has ended, is frozen, or the network is cut"


def find_host_name() -> str:
    """Return the name of this machine, for messages."""
    return socket.gethostname()


def find_own_address(host: str, port: int) -> str:
    """Return the address of this machine from which packets to `host` are sent; nothing is sent. Raises OSError."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def _name_interface(own_address: str) -> str | None:
    """Return the name of the interface that has `own_address`, such as eth0; None if none has."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address.partition("%")[0] == own_address for address in addresses):
            return name
    # All of 127.0.0.0/8 belongs to the loopback interface, which lists one address of it.
    return "lo" if own_address.startswith("127.") else None
