"""Requests for plans: fixed ones, and random ones drawn by hypothesis."""

from dataclasses import replace
from typing import Literal, get_args

from hypothesis import strategies as st

from sharding.planner import Dense, PlanRequest, Rule, Table, Topology, make_plan
from sharding.planner.check import count_bytes_by_memory_domain
from sharding.planner.types import (
    COLUMN_TYPES,
    INT8_TYPES,
    SHARDING_TYPES,
    ExchangeType,
    ShardingType,
    TableDtype,
)

TYPES: tuple[ShardingType | Literal["auto"], ...] = ("auto", *SHARDING_TYPES)


def make_tables(sizes: list[int], dim: int = 16) -> tuple[Table, ...]:
    return tuple(Table(f"t{number}", rows, dim) for number, rows in enumerate(sizes))


def make_topology(num_nodes: int, ranks_per_node: int, *, device: str = "cpu", memory_bytes: int = 10**12) -> Topology:
    return Topology(
        num_nodes=num_nodes,
        ranks_per_node=ranks_per_node,
        device="cuda" if device == "cuda" else "cpu",
        memory_bytes=memory_bytes,
        memory_bandwidth=2e10,
        intra_node_bandwidth=3e9,
        inter_node_bandwidth=1e9,
        flops=1e11,
    )


def make_request(tables: tuple[Table, ...], topology: Topology, **fields: object) -> PlanRequest:
    settings: dict[str, object] = {"global_size": 4096, "chunk_size": 512, "dense": Dense({"activations": 1000}, 400)}
    return PlanRequest(tables, topology, **(settings | fields))  # pyright: ignore[reportArgumentType]


def set_memory(request: PlanRequest, num_bytes: int) -> PlanRequest:
    return replace(request, topology=replace(request.topology, memory_bytes=num_bytes))


def tighten(request: PlanRequest, share_size: int, part: float) -> PlanRequest:
    """Return the request with `share_size` samples a rank, and `part` of the memory that its fullest domain then needs.

    Another plan may fit all the same.
    """
    whole = replace(request, global_size=share_size * request.topology.world_size, chunk_size=min(512, share_size))
    return set_memory(whole, int(part * max(count_bytes_by_memory_domain(whole, make_plan(whole)))))


REQUEST_WITHOUT_ROOM = make_request(
    make_tables([3_000_000] * 8, 64), make_topology(1, 4, device="cuda", memory_bytes=10**9), optimizer="adagrad"
)
"""Request for 12.3 GB of tables, with the optimizer's state, in 4 GB of memory."""


@st.composite
def draw_requests(draw: st.DrawFn) -> PlanRequest:
    """Draw a request of up to 12 ranks and 20 tables, with room for all, of any type that the optimizer allows."""
    topology = make_topology(
        draw(st.integers(1, 3)), draw(st.integers(1, 4)), device=draw(st.sampled_from(["cpu", "cuda"]))
    )
    dtype = "fp32" if topology.device == "cuda" else draw(st.sampled_from(get_args(TableDtype)))
    tables = tuple(
        Table(
            f"t{number}",
            rows,
            draw(st.sampled_from([4, 6, 16, 64])),
            draw(st.sampled_from([0.5, 1.0, 20.0])),
            dtype=dtype,
        )
        for number, rows in enumerate(draw(st.lists(st.integers(1, 5_000_000), max_size=20)))
    )
    optimizer = draw(st.sampled_from(["sgd", "rowwise_adagrad", "adagrad"]))
    types: list[ShardingType | Literal["auto"]]
    types = [kind for kind in TYPES if optimizer != "rowwise_adagrad" or kind not in COLUMN_TYPES]
    if dtype == "int8":
        types = ["auto", *INT8_TYPES]
    is_one_memory = topology.num_nodes == 1 and topology.device == "cpu"
    transport = draw(st.sampled_from(["memory", "network"])) if is_one_memory else "network"
    in_files = transport == "memory" and draw(st.booleans())
    return make_request(
        tables,
        topology,
        global_size=draw(st.sampled_from([64, 32_768])),
        optimizer=optimizer,
        exchange_dtype=draw(st.sampled_from(get_args(ExchangeType))),
        transport=transport,
        plan=draw(st.sampled_from(types)),
        rules=(Rule("t1*", draw(st.sampled_from(types))),) if len(tables) > 1 else (),
        may_be_int8=dtype == "fp32" and topology.device == "cpu" and draw(st.booleans()),
        may_lie_in_files=in_files,
        resident_bytes=draw(st.sampled_from([2**24, 2**28, 2**40])) if in_files and draw(st.booleans()) else None,
    )
