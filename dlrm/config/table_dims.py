"""Embedding dimensions of single tables: stated ones, or by the number of rows."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field, StringConstraints

from dlrm.config.base import Auto
from dlrm.config.column_patterns import find_no_match, find_setting
from dlrm.config.errors import FieldError, invalid, shorten_value
from dlrm.config.messages import format_some
from dlrm.config.schema import MAX_NAME_LENGTH

MIN_DIM, MAX_DIM, DIM_MULTIPLE = 4, 1024, 4
_MAX_FEATURE_LENGTH = MAX_NAME_LENGTH + 20
"""Largest number of characters of a feature: a column's, and the use of its values."""
EmbeddingDim = Annotated[int, Field(ge=MIN_DIM, le=MAX_DIM, multiple_of=DIM_MULTIPLE)]


def _check_values(document: Any) -> Any:
    """Raise ValueError at a value that no table can have; the error names its rule."""
    rules = cast("dict[object, object]", document) if isinstance(document, dict) else {}
    for name, dim in rules.items():
        is_dim = type(dim) is int and MIN_DIM <= dim <= MAX_DIM and dim % DIM_MULTIPLE == 0
        if not is_dim and dim != "auto":
            valid = f'a multiple of {DIM_MULTIPLE} from {MIN_DIM} to {MAX_DIM:,}, or "auto"'
            raise invalid(str(name), f"{shorten_value(dim)} is no dimension of a table", valid)
    return document  # pyright: ignore[reportUnknownVariableType], pydantic checks it


TableDims = Annotated[
    dict[Annotated[str, StringConstraints(min_length=1, max_length=_MAX_FEATURE_LENGTH)], EmbeddingDim | Auto],
    Field(min_length=1, max_length=10_000),
    BeforeValidator(_check_values),
]
MAX_NAMED = 5
"""Largest number of tables that an error lists."""
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
    dim = find_setting(rules or {}, name) or embedding_dim
    return compute_auto_dim(embedding_dim, num_rows) if isinstance(dim, str) else dim


def check_dims(rules: Mapping[str, int | str], embedding_dim: int) -> None:
    """Raise ValueError if a rule asks for more than `embedding_dim`."""
    for name, dim in rules.items():
        if not isinstance(dim, str) and dim > embedding_dim:
            message = f"{dim} is more than embedding_dim, {embedding_dim}"
            raise invalid(f"table_dims.{name}", message, f'at most {embedding_dim}, or "auto"')


def find_idle_rule(rules: Mapping[str, int | str] | None, tables: Iterable[str]) -> FieldError | None:
    """Find a rule that matches none of the tables, by name."""
    # "*" is of all tables, and there may be none.
    fault = find_no_match([name for name in rules or {} if name != "*"], set(tables), "table")
    return None if fault is None else FieldError("model.table_dims", *fault)


def find_dim_faults(
    rules: Mapping[str, int | str] | None, old: Mapping[str, int | str] | None, embedding_dim: int
) -> list[FieldError]:
    """Find the stated dimensions that a warm start cannot have.

    old: dimension of each table of the model to start from; None if all have its `embedding_dim`. A dimension by rows
    is the model's, however many rows there are now.
    """
    valid = "null, for the dimensions of the model that the run starts from"
    if rules is None:
        return []
    if old is None or has_one_dim(old, embedding_dim):
        narrower = [name for name, dim in rules.items() if not isinstance(dim, str) and dim != embedding_dim]
        message = f"all tables of the model that the run starts from have {embedding_dim}"
        return [FieldError(f"model.table_dims.{name}", message, valid) for name in narrower]
    stated = {name: find_setting(rules, name) or embedding_dim for name in old}
    others = [name for name, dim in stated.items() if not isinstance(dim, str) and dim != old[name]]
    if not others:
        return []
    tables = format_some(others[:MAX_NAMED], len(others))
    first = f"{others[0]} gets {stated[others[0]]}, not {old[others[0]]}"
    message = f"differs from the model that the run starts from in {tables}: {first}"
    return [FieldError("model.table_dims", message, valid)]


def has_one_dim(rules: Mapping[str, int | str] | None, embedding_dim: int) -> bool:
    """Whether all tables are stated to have `embedding_dim`, which is as if nothing was stated."""
    return rules is not None and set(rules.values()) == {embedding_dim}


def is_open(rules: Mapping[str, int | str] | None) -> bool:
    """Whether the dimensions of some tables are left to the model that a run starts from."""
    return rules is None or "auto" in rules.values()
