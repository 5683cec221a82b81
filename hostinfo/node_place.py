"""Place of this machine among the nodes of a job: its number, and the address at which the nodes meet."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

FIRST_PORT, NUM_PORTS = 20_000, 10_000
"""Range of the ports that are derived from a Slurm job's number."""


class NodePlaceError(ValueError):
    """Error of a place that cannot be; the message names the option or variable at fault, and what would be valid."""


@dataclass(frozen=True)
class NodePlace:
    """Number of this node, and the address of node 0."""

    node: int
    """Number of this node, counted from 0."""
    host: str
    port: int

    @property
    def options(self) -> list[str]:
        """Options of the launch process that name this place."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return ["--node-rank", str(self.node), "--rendezvous", f"{host}:{self.port}"]


def find_place(node_rank: int | None, rendezvous: str | None, environment: Mapping[str, str]) -> NodePlace | None:
    """Return the place that the options name, or else Slurm's variables; None if both name none: one node.

    Raises NodePlaceError.
    """
    if node_rank is None and rendezvous is None:
        return _find_slurm_place(environment)
    if node_rank is None:
        raise _make_error("--node-rank", "is missing beside --rendezvous", "0 on the first machine, 1 on the next …")
    if rendezvous is None:
        raise _make_error("--rendezvous", "is missing beside --node-rank", "HOST:PORT of the first machine")
    if node_rank < 0:
        raise _make_error("--node-rank", f"{node_rank} is no number of a node", "0 to resources.nodes - 1")
    return NodePlace(node_rank, *_parse_address(rendezvous))


def _parse_address(rendezvous: str) -> tuple[str, int]:
    host, _, port = rendezvous.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise _make_error(
            "--rendezvous", f"{rendezvous!r} is no address", "HOST:PORT of the first machine, such as node0:29500"
        )
    return host, int(port)


def _find_slurm_place(environment: Mapping[str, str]) -> NodePlace | None:
    """Return the place of this process in a Slurm step of several nodes, with one task on each; None outside of one."""
    # Only a step has them, which srun starts on every node; the script of a batch job is one process on the first node.
    if int(environment.get("SLURM_STEP_NUM_NODES", "1")) == 1:
        return None
    if environment.get("SLURM_LOCALID", "0") != "0":
        message = f"this is task {environment['SLURM_LOCALID']} of its node, and a node is one task"
        raise _make_error(
            "SLURM_LOCALID", message, "srun --ntasks-per-node=1; the ranks are resources.workers_per_node"
        )
    nodes = environment["SLURM_STEP_NODELIST"]
    port = FIRST_PORT + int(environment["SLURM_JOB_ID"]) % NUM_PORTS
    return NodePlace(int(environment["SLURM_NODEID"]), read_first_host(nodes), port)


def read_first_host(nodes: str) -> str:
    """Return the first host of a list as Slurm writes it: `gpu[07-09,12]-a,login1` begins with gpu07-a."""
    first = re.match(r"(?:\[[^\]]*\]|[^,\[])+", nodes)
    assert first is not None, "a Slurm step has a first node"
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first.group())


def _make_error(field: str, message: str, valid: str) -> NodePlaceError:
    return NodePlaceError(f"{field}: {message} (valid: {valid})")
