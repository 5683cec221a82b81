"""Embedding dimensions of single tables: stated ones, or by the number of rows."""

import fnmatch
from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import Field, StringConstraints

from dlrm.config.base import Auto
from dlrm.config.errors import FieldError, invalid
from dlrm.config.messages import describe_no_match
from dlrm.config.schema import MAX_NAME_LENGTH

MIN_DIM, MAX_DIM, DIM_MULTIPLE = 4, 1024, 4
EmbeddingDim = Annotated[int, Field(ge=MIN_DIM, le=MAX_DIM, multiple_of=DIM_MULTIPLE)]
TableDims = Annotated[
    dict[Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_LENGTH)], EmbeddingDim | Auto],
    Field(min_length=1, max_length=10_000),
]
WIDE_ROWS = 1_000
"""Most rows of a table that has all elements under auto."""
DIM_EXPONENT = 0.3
"""Exponent of the number of rows by which larger tables are narrower (the temperature of Ginart et al. 2019, arXiv
1909.11810). There the smallest table of a model is the widest one; here all tables of up to `WIDE_ROWS` rows are, so
that one more small column changes no other table."""


def compute_auto_dim(embedding_dim: int, num_rows: int) -> int:
    """Compute the dimension of a table of so many rows: a multiple of 4, at most `embedding_dim`."""
    exact = embedding_dim * min(1.0, (WIDE_ROWS / max(num_rows, 1)) ** DIM_EXPONENT)
    return max(MIN_DIM, DIM_MULTIPLE * round(exact / DIM_MULTIPLE))


def choose_dim(rules: Mapping[str, int | str] | None, embedding_dim: int, name: str, num_rows: int) -> int:
    """Choose the dimension of the table of one feature by the rules of `model.table_dims`."""
    if rules is None:
        return embedding_dim
    matching = (dim for pattern, dim in rules.items() if fnmatch.fnmatchcase(name, pattern))
    dim = rules.get(name) or next(matching, embedding_dim)
    return compute_auto_dim(embedding_dim, num_rows) if isinstance(dim, str) else dim


def check_dims(rules: Mapping[str, int | str], embedding_dim: int) -> None:
    """Raise ValueError if a rule asks for more than `embedding_dim`."""
    for name, dim in rules.items():
        if not isinstance(dim, str) and dim > embedding_dim:
            message = f"{dim} is more than embedding_dim, {embedding_dim}"
            raise invalid(f"table_dims.{name}", message, f'at most {embedding_dim}, or "auto"')


def find_idle_rule(rules: Mapping[str, int | str] | None, names: Iterable[str]) -> FieldError | None:
    """Find a rule that matches none of the tables `names`."""
    tables = set(names)
    for pattern in rules or {}:
        if pattern not in tables and not fnmatch.filter(tables, pattern):
            hint, valid = describe_no_match(pattern, tables)
            return FieldError("model.table_dims", f"{pattern!r} matches no table{hint}", valid)
    return None


def find_dim_faults(rules: Mapping[str, int | str] | None, old: Mapping[str, int | str] | None) -> list[FieldError]:
    """Find the stated dimensions that a warm start cannot have.

    old: dimension of each table of the model to start from; None if all have its `embedding_dim`. A dimension by rows is the model's, however
    many rows there are now.
    """
    return [
        FieldError(
            f"model.table_dims.{name}", f"{dim} is not the dimension of the model that the run starts from", valid
        )
        for name, dim in (rules or {}).items()
        if not isinstance(dim, str)
        for valid in ["null, or auto" if old is None else str(old.get(name, "null, or auto"))]
        if str(dim) != valid
    ]
