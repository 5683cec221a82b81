"""Plans of embedding tables: types, search, and estimates of time and memory. Imports no torch.

The parts are named as in TorchRec: the Enumerator lists the options to shard a table, the Estimators compute their time
and memory, the Proposer searches for the best combination, and the Partitioner places shards on ranks. `python -m
sharding.planner` reads a request as JSON and writes the plan's report as JSON.
"""

from sharding.planner.diagnosis import Diagnosis, NoPlanError
from sharding.planner.planner import make_plan
from sharding.planner.types import (
    Block,
    Dense,
    ExchangeType,
    Plan,
    PlanError,
    PlanRequest,
    Rule,
    ShardingType,
    Table,
    TableOptimizerName,
    TablePlan,
    Topology,
    Transport,
)
