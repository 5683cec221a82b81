"""Plans over ranks with room for any tables, at round figures: for tests where only proportions count."""

from collections.abc import Sequence

from sharding.planner import Plan, PlanRequest, Table, Topology, make_plan
from sharding.planner.types import TableOptimizerName
from tests.sharding.planner.plan_requests import make_topology

ROOM_BYTES = 2**62


def make_plain_topology(num_nodes: int, ranks_per_node: int, *, device: str = "cpu") -> Topology:
    return make_topology(num_nodes, ranks_per_node, device=device, memory_bytes=ROOM_BYTES)


def make_plain_plan(
    tables: Sequence[Table],
    world_size: int,
    choice: str,
    *,
    optimizer: TableOptimizerName = "sgd",
    ranks_per_node: int | None = None,
) -> Plan:
    """Make a plan of fixed or automatic type. ranks_per_node: all ranks by default."""
    per_node = ranks_per_node or world_size
    topology = make_plain_topology(world_size // per_node, per_node)
    request = PlanRequest(
        tuple(tables),
        topology,
        global_size=32_768,
        chunk_size=2_048,
        optimizer=optimizer,
        transport="memory" if topology.num_nodes == 1 else "network",
        plan=choice,  # pyright: ignore[reportArgumentType]
    )
    return make_plan(request)
