"""Bounds of the numbers in documents: limits that several fields have, and how errors describe them."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, get_args

from annotated_types import Ge, Gt, Le, Lt
from pydantic import Field
from pydantic.fields import FieldInfo

MIN_POSITIVE, MAX_FACTOR = 1e-30, 1e6
"""Smallest and largest positive factor, such as a learning rate. A rate times the factor of a group, weight decay and
the largest scaling with the batch stays within what fp32 holds."""
Positive = Annotated[float, Field(ge=MIN_POSITIVE, le=MAX_FACTOR)]
NotNegative = Annotated[float, Field(ge=0.0, le=MAX_FACTOR)]
MAX_ROWS = 2**40
"""Largest number of rows, of data and of tables."""
MAX_SECONDS = 10 * 366 * 24 * 3600
"""Ten years: later times may be beyond what a date can say."""


def list_constraints(annotation: Any, metadata: Sequence[Any]) -> Iterator[Any]:
    """List the constraints of a type such as `Annotated[int, Field(ge=1)] | None`."""
    for constraint in metadata:
        yield from constraint.metadata if isinstance(constraint, FieldInfo) else [constraint]
    for argument in get_args(annotation):
        yield from list_constraints(argument, getattr(argument, "__metadata__", ()))


def describe_bounds(field: FieldInfo) -> str:
    """Describe the numbers that are valid in a field, such as `1 to 1,000`; empty without both bounds."""
    constraints = list(list_constraints(field.annotation, field.metadata))
    lows = [f"{format_bound(found.ge)}" for found in constraints if isinstance(found, Ge)]
    lows += [f"above {format_bound(found.gt)}" for found in constraints if isinstance(found, Gt)]
    highs = [f"to {format_bound(found.le)}" for found in constraints if isinstance(found, Le)]
    highs += [f"to less than {format_bound(found.lt)}" for found in constraints if isinstance(found, Lt)]
    return f"{lows[0]} {highs[0]}" if lows and highs else ""


def format_bound(bound: Any) -> str:
    """Format a bound, such as `1,000` or `1e-30`."""
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:,.10g}"
