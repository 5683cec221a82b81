"""Runs of `dlrm report` for tests."""

import json
from collections.abc import Callable
from typing import Any

Command = Callable[..., Any]


def read_json(dlrm: Command, *arguments: object) -> dict[str, Any]:
    ended = dlrm("report", *map(str, arguments), "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def refuse(dlrm: Command, *arguments: object) -> str:
    ended = dlrm("report", *map(str, arguments))
    assert (ended.code, ended.out) == (2, ""), ended.err
    return " ".join(ended.err.split())


def find(rows: list[dict[str, Any]], method: str, batch: int) -> dict[str, Any]:
    (row,) = [row for row in rows if (row["method"], row["compared"]["batch.global_size"]) == (method, batch)]
    return row
