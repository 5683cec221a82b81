"""Plans of embedding tables: what they are, and how one is made. Imports no torch."""

from sharding.plan.make import make_plan
from sharding.plan.plan import Block, Plan, ShardingType, Table, TablePlan

__all__ = ["Block", "Plan", "ShardingType", "Table", "TablePlan", "make_plan"]
