"""Plans of embedding tables: what they are, how one is made, and what it costs. Imports no torch.

`python -m sharding.plan` reads a request as JSON and writes the answer as JSON.
"""

from sharding.plan.errors import PlanError
from sharding.plan.make import plan_of
from sharding.plan.plan import Block, Plan, ShardingType, Table, TableOptimizerName, TablePlan
from sharding.plan.request import Dense, PlanRequest, Rule
from sharding.plan.topology import Topology, Transport

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
    "plan_of",
]
