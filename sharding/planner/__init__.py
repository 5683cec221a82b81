"""Plans of embedding tables: what they are, how one is made, and what it costs. Imports no torch.

`python -m sharding.planner` reads a request as JSON and writes the answer as JSON.
"""

from sharding.planner.errors import PlanError
from sharding.planner.planner import make_plan
from sharding.planner.request import Dense, PlanRequest, Rule
from sharding.planner.topology import Topology, Transport
from sharding.planner.types import Block, Plan, ShardingType, Table, TableOptimizerName, TablePlan

__all__ = [
    "Block",
    "Dense",
    "Plan",
    "PlanError",
    "PlanRequest",
    "Rule",
    "ShardingType",
    "Table",
    "TableOptimizerName",
    "TablePlan",
    "Topology",
    "Transport",
    "make_plan",
]
